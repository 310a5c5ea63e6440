"""What a cache has to be judged: its methods, its adapter, its configurations, perhaps a pipe."""
