"""The adapter for nano-vllm's `BlockManager`, used by requests.

nano-vllm publishes no release with its cache: an environment has its files from a source folder.
"""
