"""Kernels in Triton: what moves pages on a GPU. They are imported only where a GPU engine is."""
