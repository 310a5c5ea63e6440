"""Releases of SGLang and vLLM, each in an environment of its own.

`catalogue` lists the releases, `environment` makes their environments, `stand_ins` holds the small
modules that replace what no CPU can load, and `pins` the exact packages of each. `past_bugs` lists
bugs that a pair of releases shows, `hunt` looks for one in a release, and `table` shows all.

An environment makes a release importable on a machine without a GPU, and changes nothing of it. The
adapters in `engines.sglang` and `engines.vllm` call its caches.
"""
