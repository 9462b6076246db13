"""What impl adds to torch.nn.parallel. The modules use the core."""
