"""Runs a CPU engine of vLLM with kvcanon's connector, and compares it with one without.

`engine_run` runs in vLLM's environment and prints what the engine answered; `verdict` compares.
Faults that are planted in the connector (`planted_faults`) must be found.
"""
