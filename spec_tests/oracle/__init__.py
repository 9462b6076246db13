"""The oracle: a simple implementation of torch.nn.parallel that returns the expected results.

The modules ``comm``, ``functions``, ``scatter_gather``, ``replicate``, ``parallel_apply`` and
``data_parallel`` have the names and functions of torch.nn.parallel. They use slices, copies and
sums, but no streams and no coalescing. They share no code with torch.nn.parallel, with
``cuda_stand_ins`` or with any target, and support only the calls that the strategies draw.

``naive`` has a wrapper that is simple enough to be right over many calls of a module that changes.

Tests use ``chunk_sizes`` and ``tensors`` directly.
"""
