"""The adapter for lightllm's `RadixCache`.

The release of lightllm in the package index is years old: an environment has the files of the cache
from a source folder.
"""
