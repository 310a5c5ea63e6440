"""Chapter 14. Replays: what an eviction had to do, worked out from the state before it.

Who is evicted is not free: the policy ranks the leaves, the last use ranks all other data, and an
eviction ends as soon as there is room. So the state before and the operation determine the victims,
their copies, and what is where afterwards. A replay works that out on a board, which has of a state
what matters for it and nothing else; the laws compare the board with the state after.

| module | what it plays |
|---|---|
| `board` | the pieces of a tree: what is where, what is locked, whose turn it is |
| `device`, `host` | evictions from the device and from the host |
| `room` | the most room that evictions could make |
| `load`, `backup`, `fetch` | a load-back, the backups of an insert, a host insert |
| `compare` | the board beside the state after |

What readers get wrong: a replay is not a second cache. What a cache may choose (how many pages of
the last victim leave, which duplicate leaves the host first, whether something impossible is tried)
is taken from the state after.
"""
