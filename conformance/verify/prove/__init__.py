"""Proofs: what a solver says of the small functions that laws, reference and judge rest on.

Read in this order: `claim` (what is claimed, and where), `naive` (second definitions), the claims
themselves (`equivalence`, `properties`, `steps` and the `trees` that these are made of), then how
they are settled (`symbolic`, `terms`, `asking`), and what keeps them honest (`record`, `seeded` and
its `mistakes`).

What readers get wrong: a claim is confirmed within its bounds, over all inputs, and says nothing
beyond them. What it says of a cache rests on the cache calling what was proved, which is tested.
"""
