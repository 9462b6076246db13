"""Benchmarks that time torch.nn.parallel and impl in the same run."""
