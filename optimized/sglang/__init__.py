"""kvcanon as the tree core of SGLang's UnifiedRadixCache.

SGLang decides nothing here that a cache should decide: it asks which pages a prompt has, hands
slots over, and says when it needs room. The native core answers by nodes and rows
(`kvcanon.optimized._core.Nodes`); this package translates, and holds the tables from rows to
SGLang's token slots.

SGLang finds it by an entry point, `kvcanon.sglang_plugin`. docs/sglang.md says how to install it,
and what is offered.
"""
