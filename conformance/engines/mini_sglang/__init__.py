"""The adapter for mini-sglang's `RadixPrefixCache`.

mini-sglang publishes no release: an environment has its files from a source folder.
"""
