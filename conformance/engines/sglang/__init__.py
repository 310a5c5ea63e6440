"""SGLang's prefix caches before the judge: several releases, one adapter.

`installed` finds what the installed release has, `making` makes a cache with pools as small as a
case asks, `keys`, `pools` and `events` translate values, `unified` translates operations, `plain`
and `hierarchical` those of the older caches, `seeing` reads the state through public attributes,
and `declared` says what each release is.

What readers get wrong: nothing here decides what SGLang should do. Where one of its objects lacks
something the adapter lacks it too, and where it answers wrongly the wrong answer is passed on.
"""
