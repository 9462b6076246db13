"""impl.scatter_gather: the operators that split one tensor."""

from typing import ClassVar
from unittest import mock

import pytest
import torch

from impl import scatter
from impl._pytree.inputs import SplitLeaf
from impl._split import split_leaves
from spec_tests.harness.concurrency.stream_log import CopyLog


class Logged(torch.Tensor):
    """A tensor that records the names of the functions that receive it."""

    names: ClassVar[list[str]] = []

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        cls.names.append(function.__name__)
        return super().__torch_function__(function, types, args, kwargs or {})


def split(topology, tensor, lengths, **options):
    leaf = SplitLeaf(tensor, 0, len(tensor), "inputs")
    pieces = split_leaves([leaf], [lengths], topology.take(2), **options)
    return [len(chunk) for chunk in pieces[leaf]]


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


def test_streams_are_set_once_for_all_tensors(topology, monkeypatch):
    setters = mock.Mock(wraps=torch.accelerator.set_stream)
    monkeypatch.setattr(torch.accelerator, "set_stream", setters)
    scatter([torch.ones(4)], topology.take(2))
    once = setters.call_count
    scatter([torch.ones(4), torch.ones(4, requires_grad=True)] * 5, topology.take(2))
    assert setters.call_count == 2 * once


class Unsplit(torch.Tensor):
    """A subclass that refuses to be split."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if "chunk" in function.__name__:
            raise NotImplementedError(function.__name__)
        return super().__torch_function__(function, types, args, kwargs)


def test_no_tensor_is_copied_if_one_cannot_be_split(topology):
    unsplit = torch.ones(4).as_subclass(Unsplit)
    log = CopyLog()
    with log, pytest.raises(NotImplementedError) as caught:
        scatter([torch.ones(4), unsplit], topology.take(2))
    assert caught.value.__notes__ == ["Argument: inputs[1] or target_gpus"]
    assert log.streams == []


class Unmoved(torch.Tensor):
    """A tensor that cannot be moved to another device."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if function.__name__ == "to":
            raise RuntimeError("cannot be moved")
        return super().__torch_function__(function, types, args, kwargs or {})


def test_error_names_the_tensor_that_cannot_be_copied(topology):
    inputs = {"x": torch.ones(4), "y": torch.ones(4).as_subclass(Unmoved)}
    with pytest.raises(RuntimeError, match="cannot be moved") as caught:
        scatter(inputs, topology.take(2))
    assert caught.value.__notes__ == ["Argument: inputs['y'] or target_gpus"]
