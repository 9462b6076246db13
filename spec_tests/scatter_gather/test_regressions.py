"""What once was wrong in scatter and gather."""

from collections import namedtuple

import pytest
import torch

from spec_tests.harness.compare import checks
from spec_tests.harness.compare.lifetimes import references
from spec_tests.harness.concurrency.leaks import no_garbage_collection
from spec_tests.harness.conformance.clauses import clause
from spec_tests.strategies.containers import Opaque

Output = namedtuple("Output", "logits loss")


def _ones(topology, count):
    return [torch.ones(2, device=device) for device in topology.take(count)]


@clause("scatter_gather.scatter.empty-containers")
@pytest.mark.parametrize("empty", [[], {}, ()], ids=repr)
def test_an_empty_keyword_argument_leaves_the_others_alone(target, topology, empty):
    # PyTorch 0.2: zip over no member made the whole result empty (#3769).
    args = (torch.ones(4, device=topology.device(0)),)
    inputs, kwargs = target.scatter_gather.scatter_kwargs(
        args, {"options": empty}, topology.take(2)
    )
    checks.same(([len(x) for (x,) in inputs], kwargs), ([2, 2], ({"options": empty},) * 2))


@clause("scatter_gather.gather.mappings")
def test_dictionaries_are_joined_by_key(target, topology):
    # PyTorch 0.2: gather knew tensors and sequences, and zipped the keys of dictionaries (#2992).
    outputs = [{"x": tensor, "y": None} for tensor in _ones(topology, 2)]
    found = target.scatter_gather.gather(outputs, topology.device(0))
    checks.same((found["x"].tolist(), found["y"]), ([1.0] * 4, None))


@clause("scatter_gather.gather.named-tuples")
def test_named_tuples_are_rebuilt_field_by_field(target, topology):
    # PyTorch 1.7: the class was called with one iterable of its fields (#50510).
    outputs = [Output(tensor, None) for tensor in _ones(topology, 2)]
    found = target.scatter_gather.gather(outputs, topology.device(0))
    checks.same((type(found), found.logits.tolist(), found.loss), (Output, [1.0] * 4, None))


@clause("scatter_gather.gather.ragged")
def test_the_longer_of_two_lists_is_not_cut(target, topology):
    # PyTorch 2.9 and before: sequences were zipped to the shortest, and the rest was lost.
    first, second = _ones(topology, 2)
    with pytest.raises(ValueError, match="longer than argument 1"):
        target.scatter_gather.gather([[first], [second, second]], topology.device(0))


@clause("scatter_gather.scatter.leaves-nothing")
@pytest.mark.parametrize("dim", [0, 5], ids="dim={}".format)
def test_the_recursion_keeps_no_argument_alive(target, topology, dim):
    # PyTorch 0.3: the recursive closure was a reference cycle that held all arguments, and after
    # the first repair still did when the call failed (#4865).
    with no_garbage_collection():
        arguments = [torch.ones(4, device=topology.device(0)), Opaque()]
        watched = references(arguments, "inputs")
        _ignoring_errors(target.scatter_gather.scatter, arguments, topology.take(2), dim)
        del arguments
        checks.same([path for path, found in watched.items() if found() is not None], [])


def _ignoring_errors(function, *arguments):
    try:
        function(*arguments)
    except IndexError:
        return


@clause("scatter_gather.scatter_kwargs.both")
def test_keyword_arguments_follow_the_order_of_the_devices(target, topology):
    # PyTorch 0.1: they were scattered to the devices counted from zero (#2184).
    devices = topology.take([1, 0])
    rows = torch.arange(2, device=topology.device(0))
    inputs, kwargs = target.scatter_gather.scatter_kwargs((rows,), {"x": rows}, devices)
    checks.same([x.device for (x,) in inputs], devices)
    checks.same([each["x"].device for each in kwargs], devices)
