"""SGLang's prefix caches before the judge: several releases, one adapter.

`release` finds names in the installed release, `factory` makes a cache with pools as small as a
case says, `keys`, `pools` and `events` translate values, and `validate` refuses calls that SGLang's
scheduler never makes. `unified` and `hicache` translate the operations for UnifiedRadixCache,
`radix` and `hi_radix` for the older caches, `rust_core` for the core that shows no nodes.
`snapshot` and `transfers` read the state through public attributes; `adapters*` declare what each
release has.

Nothing here decides what SGLang should do. What one of its objects lacks the adapter lacks, too,
and a wrong answer is passed on.
"""
