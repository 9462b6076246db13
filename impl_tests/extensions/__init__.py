"""Tests of the features of impl that torch.nn.parallel lacks."""
