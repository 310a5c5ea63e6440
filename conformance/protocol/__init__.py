"""Protocol: the methods a cache must have to be judged, in process or over a pipe; its loading."""
