"""Chapter 2. Oracles: the definitions, as small pure functions.

Each oracle function answers one question about a cache over plain integers, booleans and tuples:
how long the usable prefix is, which nodes a backup copies, which leaf is evicted first. The laws
and the reference call the same functions, so a proof about an oracle function is a proof about the
code that runs.

CrossHair checks the contracts in the docstrings (`pre:` and `post:`). The bounds in `pre:` are the
bounds of the proof; the functions work beyond them. An oracle function *defines* the right answer;
it does not test one.
"""
