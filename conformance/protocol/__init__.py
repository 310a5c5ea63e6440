"""Protocol: what a cache offers to be judged, in process or over a pipe, and how it is loaded."""
