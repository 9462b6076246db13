"""Regressions of scatter and gather in earlier PyTorch releases."""

from collections import namedtuple

import pytest
import torch

from spec_tests.harness.compare import checks
from spec_tests.harness.conformance.clauses import clause

Output = namedtuple("Output", "logits loss")


def _ones(topology, count):
    return [torch.ones(2, device=device) for device in topology.take(count)]


@clause("scatter_gather.scatter.empty-containers")
@pytest.mark.parametrize("empty", [[], {}, ()], ids=repr)
def test_empty_keyword_argument_does_not_remove_the_others(target, topology, empty):
    # PyTorch 0.2: zip over an empty container made the whole result empty (#3769).
    args = (torch.ones(4, device=topology.device(0)),)
    inputs, kwargs = target.scatter_gather.scatter_kwargs(
        args, {"options": empty}, topology.take(2)
    )
    checks.same(([len(x) for (x,) in inputs], kwargs), ([2, 2], ({"options": empty},) * 2))


@clause("scatter_gather.gather.mappings")
def test_dictionaries_are_gathered_by_key(target, topology):
    # PyTorch 0.2: gather treated a dictionary as a sequence of its keys (#2992).
    outputs = [{"x": tensor, "y": None} for tensor in _ones(topology, 2)]
    found = target.scatter_gather.gather(outputs, topology.device(0))
    checks.same((found["x"].tolist(), found["y"]), ([1.0] * 4, None))


@clause("scatter_gather.gather.named-tuples")
def test_named_tuples_are_rebuilt_field_by_field(target, topology):
    # PyTorch 1.7: gather called the class with one iterable, not with its fields (#50510).
    outputs = [Output(tensor, None) for tensor in _ones(topology, 2)]
    found = target.scatter_gather.gather(outputs, topology.device(0))
    checks.same((type(found), found.logits.tolist(), found.loss), (Output, [1.0] * 4, None))


@clause("scatter_gather.gather.ragged")
def test_longer_list_is_refused_instead_of_truncated(target, topology):
    # Until PyTorch 2.9, gather truncated sequences to the length of the shortest one.
    first, second = _ones(topology, 2)
    with pytest.raises(ValueError, match="longer than argument 1"):
        target.scatter_gather.gather([[first], [second, second]], topology.device(0))


@clause("scatter_gather.scatter_kwargs.both")
def test_keyword_arguments_follow_the_order_of_the_devices(target, topology):
    # PyTorch 0.1: keyword arguments went to devices 0, 1, ... instead of the given ones (#2184).
    devices = topology.take([1, 0])
    rows = torch.arange(2).to(topology.device(0))
    inputs, kwargs = target.scatter_gather.scatter_kwargs((rows,), {"x": rows}, devices)
    checks.same([x.device for (x,) in inputs], devices)
    checks.same([replica_kwargs["x"].device for replica_kwargs in kwargs], devices)
