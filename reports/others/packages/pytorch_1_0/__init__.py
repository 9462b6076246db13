"""parallel_apply as in PyTorch 1.0, written from a description of its behaviour.

The caller gets a worker's exception unchanged, without the number of its replica. The workers copy
the caller's grad mode, but neither its autocast state nor its stream. Arguments of different
lengths raise an AssertionError.
"""

from .parallel_apply import parallel_apply as parallel_apply
