"""Tests of what torch.nn.parallel lacks."""
