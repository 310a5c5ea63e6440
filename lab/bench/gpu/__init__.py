"""Measurements of transfers on a GPU, compared with the largest copies of its link.

All transfers are checked before they are timed. Times are wall clock, with the device idle before,
around work that runs much longer than it takes to enqueue.

The speed of the link depends on the machine. Compare ratios to the link as measured in the same
run, not gigabytes per second, between machines.
"""
