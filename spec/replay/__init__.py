"""Chapter 15. Replays: what an eviction had to do, computed from the state before it.

A cache may not choose its victims: the policy orders the leaves, the LRU order all other data,
and an eviction ends as soon as enough slots are free. So the state before and the operation
determine the victims, their copies, and what is on each medium afterwards. A replay computes that
on a board, a reduced copy of the state; the laws compare the board with the state after.

| module | content |
|---|---|
| `board` | the tree in pieces: data, locks, policy keys, places in LRU orders, what may leave |
| `device`, `host` | evictions from the device and from the host |
| `load`, `backup`, `host_insert` | a load-back, the backups of an insert, a host insert |
| `compare` | the changes on the board and those of the step |

Some choices are free: how many pages of the last victim leave, which duplicate leaves the host
first, whether the cache evicts for a request that cannot fit. The replay takes them from the state
after.
"""
