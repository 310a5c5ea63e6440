"""Adapters for the caches of SGLang, vLLM, MAX, mlx-lm, LMDeploy, nano-vllm and others."""
