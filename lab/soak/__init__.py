"""Long runs: the fast cache and `kvcanon watch` under load, and a trace beside NVIDIA Dynamo."""
