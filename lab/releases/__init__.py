"""Releases of other engines, each in an environment of its own.

`catalogue` lists the releases, `environment` makes their environments, `source` copies the cache
of a project without a release into one, `stand_ins` holds small
modules that replace GPU-only packages, and `pins` the exact package versions of each release.
`past_bugs` lists bugs that a pair of releases shows, `hunt` searches a release for one of them, and
`table` shows the results.

An environment makes an unchanged release importable on a machine without a GPU. The adapters in
kvcanon.conformance.engines call its caches.
"""
