"""parallel_apply as PyTorch 1.0 had it, written from a description of what it did.

A worker's exception is raised as it is, not a new one that names the replica. Of the caller's
state only grad mode reaches the workers: no autocast, no stream. Lengths are asserted.
"""

from .parallel_apply import parallel_apply as parallel_apply
