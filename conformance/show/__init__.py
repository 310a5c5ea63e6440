"""Shows a run as one HTML page: the tree over time, step by step, and the law that breaks.

A run is a case of a check, a vector, or a replay of requests. Its calls are recorded with the state
after each; the page keeps the first state and what each step changed.
"""
