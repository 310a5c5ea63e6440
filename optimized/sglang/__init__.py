"""kvcanon as the tree core of SGLang's UnifiedRadixCache.

SGLang decides nothing here that a cache should decide: it asks which pages a prompt has, hands slots
over, and says when it needs room. The native core answers by nodes and rows
(`kvcanon.optimized._core.Nodes`); this package translates, and holds the tables from rows to SGLang's
token slots.

SGLang imports it by the entry point `sglang.srt.plugins`, in every process, so that `plugin` imports
nothing of SGLang or torch before it is called. docs/sglang.md says how to install and what is
offered.
"""
