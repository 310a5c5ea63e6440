"""Adapters for LMDeploy's prefix cache: its paging scheduler, and the block trie alone.

`factory` finds names in the installed release, and makes a scheduler with blocks for the
case, `scheduled_cache` judges the scheduler by requests, `trie_cache` judges the block trie by
prefixes, and `adapters` declares the adapters.

Both use the PyTorch engine's `lmdeploy.pytorch.paging`. LMDeploy's other engine, TurboMind, has a
cache of its own in C++, which is not judged.
"""
