"""The bench: caches measured side by side, each in a process of its own.

`case` says what is measured, `drivers` call each cache as its own engine would, `throughput`,
`growth` and `floor` measure, `child` is the process that runs one measurement, and `contest` starts
these processes in turns. `judge_speed` times the judge.

Trap: no law is checked here, so a fast answer may be a wrong one. The bench only compares hit
rates; `kvcanon check` checks the laws.
"""
