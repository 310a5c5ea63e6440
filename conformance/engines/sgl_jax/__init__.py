"""The adapters for sglang-jax's `RadixCache` and `SWARadixCache`, used by prefixes.

The release of sglang-jax in the package index is older than its window cache: an environment has
its files from a source folder.
"""
