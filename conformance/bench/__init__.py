"""The bench: caches measured side by side, each in a process of its own.

`case` says what is measured, `drivers` call each cache as its own engine would, `serving`,
`growing` and `floor` measure, `child` is the process that does, and `contest` starts one after the
other, in turns.

What readers get wrong: nothing is judged here, and a fast answer may be a wrong one. What the bench
asks is that hit rates agree; `kvcanon check` asks the rest.
"""
