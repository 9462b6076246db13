"""Data parallelism in one process: a drop-in for ``torch.nn.parallel``, on any accelerator."""
