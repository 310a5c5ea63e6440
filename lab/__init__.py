"""Judges the judge: mutants, variants, proofs, real servers, releases, benchmarks, the site.

The lab is in the repository and not in the wheel. It may import everything, and nothing imports it.
"""
