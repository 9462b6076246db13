"""Additions to torch.nn.parallel, built on the core of impl."""
