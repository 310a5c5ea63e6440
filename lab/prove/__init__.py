"""Proofs: what a solver says of the small functions that laws, reference and judge rest on.

Read in this order: `claim` (what is claimed, and where), `second_definitions`, the claims
themselves (`equivalence`, `properties`, `steps` and the `trees` that these are made of), then how
they are settled (`crosshair_check`, `z3_check`, `proof_run`), and what keeps them honest (`record`
and `mutation`).

A claim is confirmed for all inputs within its bounds, and says nothing beyond them. What it says of
a cache rests on the cache calling the proved function, which is tested.
"""
