"""Right answers that owe nothing to any implementation.

``comm``, ``functions``, ``scatter_gather``, ``replicate``, ``parallel_apply``, ``data_parallel``
answer whole calls and are laid out like torch.nn.parallel: slices, copies, sums, one module after
the other; no streams, no coalescing, no kernels of their own. They share no code with the
reference, its stand-ins or any target, know only the calls that the strategies draw, and leave out
what a law or a pinned text judges.

``chunk_sizes``, ``gradients`` and ``tensors`` are parts of answers, which tests use directly;
``replica_laws`` and ``wrapped_module`` are laws: a replica, or a wrapped module, beside the module
alone.
"""
