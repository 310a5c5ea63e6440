"""Triton kernels that move pages on a GPU. Only the GPU engine imports them."""
