"""Chapter divergences: where torch.nn.parallel is wrong."""
