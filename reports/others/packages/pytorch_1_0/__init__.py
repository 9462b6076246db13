"""parallel_apply as in PyTorch 1.0, written from a description of its behaviour.

The exception of a worker is raised unchanged, without the name of its replica. The workers take
over the caller's grad mode, but neither autocast nor the stream. Lengths are asserted.
"""

from .parallel_apply import parallel_apply as parallel_apply
