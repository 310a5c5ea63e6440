"""Adapters for SGLang's prefix caches, the same for several releases.

`release` finds names in the installed release, `factory` makes a cache with pools of the case's
size, `keys`, `pools` and `events` translate values, and `validate` refuses calls that SGLang's
scheduler never makes. `unified` and `hicache` translate the operations for UnifiedRadixCache,
`radix` and `hi_radix` for the older caches, `rust_core` for the core that shows no nodes.
`snapshot` and `transfers` read the state through public attributes; `adapters*` declare what each
release has.

The adapters correct nothing: they lack what SGLang's objects lack, and pass wrong answers on.
"""
