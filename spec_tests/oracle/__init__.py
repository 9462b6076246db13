"""The oracle: a simple implementation of torch.nn.parallel for comparison with targets.

``comm``, ``functions``, ``scatter_gather``, ``replicate``, ``parallel_apply`` and
``data_parallel`` have the layout of torch.nn.parallel. They use slices, copies and sums, without
streams and coalescing, and share no code with the reference, its stand-ins or any target. They
support only the calls that the strategies draw.

Tests use ``chunk_sizes``, ``gradients`` and ``tensors`` directly. ``replica_laws`` and
``wrapped_module`` compare a replica or a wrapped module with the module alone.
"""
