"""impl.scatter_gather: the operators that split one tensor."""

from typing import ClassVar

import torch

from impl import scatter
from impl._pytree.inputs import SplitLeaf
from impl.scatter_gather import split_leaf


class Logged(torch.Tensor):
    """A tensor that records the names of the functions that receive it."""

    names: ClassVar[list[str]] = []

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        cls.names.append(function.__name__)
        return super().__torch_function__(function, types, args, kwargs or {})


def split(topology, tensor, lengths, **options):
    leaf = SplitLeaf(tensor, 0, len(tensor), ())
    return [len(chunk) for chunk in split_leaf(leaf, topology.take(2), lengths, **options)]


def test_a_subclass_is_split_by_chunk_only_into_even_chunks(topology):
    tensor = torch.ones(4, device=topology.device(0)).as_subclass(Logged)
    Logged.names.clear()
    assert split(topology, tensor, [2, 2], even=True) == [2, 2]
    assert "chunk" in Logged.names
    Logged.names.clear()
    assert split(topology, tensor, [1, 3], even=False) == [1, 3]
    assert "chunk" not in Logged.names


def test_gradients_of_chunks_flow_through_one_node(topology):
    leaf = torch.ones(4, device=topology.device(0), requires_grad=True)
    chunks = [chunk for (chunk,) in scatter((leaf,), topology.take(2))]
    assert len({chunk.grad_fn for chunk in chunks}) == 1
