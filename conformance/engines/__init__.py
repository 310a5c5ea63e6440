"""Adapters for the caches of SGLang, vLLM, MAX, mlx-lm, LMDeploy and others, and for stores."""
