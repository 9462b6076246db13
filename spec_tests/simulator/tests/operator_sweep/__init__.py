"""Comparison of every operator in PyTorch's OpInfo database on a simulated device and the CPU."""
