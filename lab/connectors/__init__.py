"""Judges KV connectors of vLLM: an engine of ours around a connector, without vLLM.

The engine has the block pool, the queues and the order of calls of vLLM's scheduler and workers
(release 0.33.0), as far as a connector can tell. Its forward computes no attention: it writes into
each token's place in a block a stamp of all tokens up to there, and reads the stamps of the tokens
before. So a byte that is wrong, stale or early is seen by the first forward that reads it.
"""
