"""Measure transfers on a GPU, side by side with the copies that its link can do at most.

Everything is checked before it is timed: a fast copy of wrong bytes is of no use. Times are wall
clock around work that runs much longer than it takes to ask for it, with the device idle before.

What readers get wrong: the link's own speed is a matter of the machine and of the day. A ratio to
what was measured in the same run carries over; a number of gigabytes a second does not.
"""
