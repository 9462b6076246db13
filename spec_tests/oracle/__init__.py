"""Right answers to whole calls, laid out like torch.nn.parallel.

Every function does what the clauses say in the plainest way: slices, copies, sums, one module
after the other; no streams, no coalescing, no kernels of its own. It shares no code with the
reference, its stand-ins or any target, knows only the calls that the strategies draw, and leaves
out what a law or a pinned text judges.
"""
