"""Adapter for mlx-lm's LRUPromptCache, used by requests.

`LRUPromptCache` has no pages and no slots. An entry is a whole prompt with the model's own cache
objects, one for each layer. A request gets a copy of the nearest entry, trimmed to the prefix that
it shares; it computes the rest in the copy, and at its end the copy becomes an entry. That is how
mlx-lm's server uses it, and how the adapter does.

A `TreeCache` cannot be made of it: it has no locks, since requests work on copies, and it evicts
prompts, not pages. So it is a `RequestCache`, of the kinds of layers that models mix:

- `KVCache` is full data, `RotatingKVCache` a sliding window, and `ArraysCache` a recurrent state.
- The arrays of a layer say what it holds. The keys of a token are the number of its slot and of its
  page, and its values are the bytes of the slot. So a block table is read from the arrays of the
  request's own copy, after all that mlx-lm has copied, trimmed, rotated and concatenated. A slot is
  the place where a page was computed, and its copies keep that name.
- A slot is free when no copy of it is left, in an entry or in a request. If too few are free,
  entries are evicted one by one by `trim_to`. The server does the same with bytes, before each
  request. That copies of a page share a slot is more than the server has: there each takes memory.
- Prompts are cut into pages for the judge only. What was found beyond the last whole page is
  trimmed off the copy, or not reused where it cannot be trimmed.
"""
