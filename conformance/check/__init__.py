"""Plays cases on judged caches, reduces what they find, gives laws their standing: `kvcanon check`.

`check` runs the stages of a `CheckPlan` (vectors, corpus, walker, machine, ranks) and returns a
`CheckResult`. In each stage a `Trial` plays cases on one cache; what is wrong is a `Finding`, which
is reduced to its smallest case, and folded with those of the same cause. A cache may hold every law
and still not agree with another one: laws leave some choices open.
"""
