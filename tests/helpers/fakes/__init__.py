"""Fakes of engines: what adapters, probes and benches call, without the engines."""
