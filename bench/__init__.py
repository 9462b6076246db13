"""Benchmarks: torch.nn.parallel and impl in the same group of the same run."""
