"""The conformance suite of torch.nn.parallel."""
