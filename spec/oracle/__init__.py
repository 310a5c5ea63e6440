"""Chapter 2. Oracles: the definitions, as small pure functions.

Each oracle answers one question about a cache over plain integers, booleans and tuples. The laws
and the reference call the very same functions, so that what is proved of an oracle is proved of
what runs. The contracts in their docstrings (`pre:` and `post:`) are in the form that CrossHair
checks; the bounds in `pre:` are those of the proof, not of the function.

What readers get wrong: an oracle is the *definition* of the right answer, not a test of it.
"""
