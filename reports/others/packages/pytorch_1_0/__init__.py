"""parallel_apply as in PyTorch 1.0, written from a description of its behaviour.

A worker's exception is raised unchanged, without the name of its replica. The workers copy the
caller's grad mode, but neither its autocast state nor its stream. Lengths are asserted.
"""

from .parallel_apply import parallel_apply as parallel_apply
