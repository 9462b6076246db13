"""impl._arguments: errors that name the argument."""

from functools import partial
from unittest.mock import Mock

import numpy as np
import pytest
import torch

import impl
from impl._arguments import argument, as_int, as_tensors
from impl.functions import Broadcast, Gather, ReduceAddCoalesced, Scatter
from impl.scatter_gather import scatter_kwargs


class NoNotesError(ValueError):
    def add_note(self, note):
        raise LookupError(note)


def test_an_error_gets_a_note_and_keeps_its_text():
    error = KeyError("text")
    with pytest.raises(KeyError) as caught, argument("x or y"):
        raise error
    assert caught.value is error
    assert error.args == ("text",)
    assert error.__notes__ == ["Argument: x or y"]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), NoNotesError("text")])
def test_an_interrupt_and_an_error_that_refuses_notes_do_not_change(error):
    with pytest.raises(type(error)) as caught, argument("x"):
        raise error
    assert caught.value is error
    assert not hasattr(error, "__notes__")


def test_the_note_has_the_names_of_the_outermost_block():
    error = ValueError("text")
    error.add_note("Argument: of the caller")
    for _ in range(2):  # The error may be raised again.
        with pytest.raises(ValueError, match="text"), argument("outer"), argument("inner"):
            raise error
    assert error.__notes__ == ["Argument: of the caller", "Argument: outer"]


def test_an_out_of_memory_error_gets_no_note():
    error = torch.OutOfMemoryError("text")
    with pytest.raises(torch.OutOfMemoryError), argument("x"):
        raise error
    assert not hasattr(error, "__notes__")


@pytest.mark.parametrize("value", [True, 1.0, None, "1", np.bool_(True)])
def test_as_int_refuses_other_objects_than_integers(value):
    with pytest.raises(TypeError, match=f"dim must be an int, not {type(value).__name__}"):
        as_int("dim", value)


@pytest.mark.parametrize("value", [torch.tensor([1]), torch.tensor(True)])
def test_as_int_refuses_tensors_of_other_values(value):
    with pytest.raises(TypeError, match="dim must be an int, not Tensor"):
        as_int("dim", value)


def test_as_int_names_the_argument_if_a_tensor_has_no_integer():
    with pytest.raises(TypeError) as caught:
        as_int("dim", torch.tensor(1.5))
    assert caught.value.__notes__ == ["Argument: dim"]


@pytest.mark.parametrize("value", [-1, np.int64(-1), torch.tensor(-1)])
def test_as_int_returns_an_int(value):
    assert as_int("dim", value) == -1
    assert type(as_int("dim", value)) is int


def test_as_tensors_names_the_index_of_an_object_that_is_no_tensor():
    x = torch.ones(1)
    assert as_tensors("inputs", iter([x])) == [x]
    with pytest.raises(TypeError, match=r"inputs\[1\] must be a tensor, not Mock"):
        as_tensors("inputs", [x, Mock(spec=torch.Tensor)])
    with pytest.raises(TypeError) as caught:
        as_tensors("inputs", 5)
    assert caught.value.__notes__ == ["Argument: inputs"]


X = torch.ones(4, 2)
NET = torch.nn.Linear(2, 1)
#: Calls whose error's note has several names, and calls with other wrong values than the gate's
#: test of all arguments (impl_tests/faults/test_bad_input.py): the names in the note -> the call.
CALLS = {
    "target_gpus of scatter, a float": partial(impl.scatter, X, [1.5]),
    "target_gpus of scatter, empty": partial(impl.scatter, X, []),
    "inputs or dim of scatter": partial(impl.scatter, X, [0, 1], 2),
    "inputs or kwargs of scatter_kwargs": partial(scatter_kwargs, X, None, [0, 1]),
    "args or dim of scatter_kwargs": partial(scatter_kwargs, (X,), None, ["cpu", "cpu"], 2),
    "kwargs['x'] or target_gpus of scatter": partial(
        scatter_kwargs, (), {"x": X.to("meta")}, ["cpu"]
    ),
    "inputs, kwargs or target_gpus of scatter": partial(
        impl.scatter, impl.Whole(X.to("meta")), ["cpu"]
    ),
    "scalar_warning of gather": partial(impl.gather, [X], "cpu", scalar_warning=X),
    "outputs, target_device or dim of gather": partial(impl.gather, [X, X], "cpu", 2),
    "detach of replicate": partial(impl.replicate, NET, [0, 1], X),
    "with_parameters of replicate": partial(impl.replicate, NET, [0], with_parameters=X),
    "network or devices of replicate": partial(impl.replicate, NET, [0, 1]),
    "modules of parallel_apply, a set": partial(impl.parallel_apply, {abs}, [1]),
    "inputs of parallel_apply": partial(impl.parallel_apply, [abs], 1),
    "in_turn of parallel_apply": partial(impl.parallel_apply, [abs], [1], in_turn=X),
    "inputs, kwargs_tup or devices of parallel_apply": partial(
        impl.parallel_apply, [abs], [1], devices=[1.5]
    ),
    "device_ids of DataParallel, a float": partial(impl.DataParallel, NET, [1.5]),
    "device_ids of DataParallel, empty": partial(impl.DataParallel, NET, []),
    "output_device of DataParallel, on the CPU": partial(impl.DataParallel, NET, ["cpu"], 1.5),
    "in_turn of DataParallel": partial(impl.DataParallel, NET, [0, 1], in_turn=X),
    "scalar_warning of DataParallel": partial(impl.DataParallel, NET, [0, 1], scalar_warning=X),
    "module_attributes of DataParallel": partial(
        impl.DataParallel, NET, [0, 1], module_attributes=X
    ),
    "cache_frozen_parameters of DataParallel, another text": partial(
        impl.DataParallel, NET, [0, 1], cache_frozen_parameters="all"
    ),
    "module or device_ids of DataParallel": partial(impl.DataParallel, abs, [0]),
    "ordered of DataParallel.map": partial(impl.DataParallel(NET).map, [], ordered=X),
    "args or dim of data_parallel": partial(impl.data_parallel, NET, X, ["cpu", "cpu"], dim=2),
    "devices or out of comm.broadcast": partial(impl.comm.broadcast, X),
    "tensor or out of comm.broadcast": partial(impl.comm.broadcast, X, out=[X]),
    "tensor or devices of comm.broadcast": partial(impl.comm.broadcast, X.to("meta"), [0]),
    "tensors of comm.broadcast_coalesced": partial(impl.comm.broadcast_coalesced, 5, [0]),
    "devices of comm.broadcast_coalesced, empty": partial(impl.comm.broadcast_coalesced, [], []),
    "inputs or destination of comm.reduce_add": partial(impl.comm.reduce_add, [X, X], 0),
    "inputs or destination of comm.reduce_add_coalesced": partial(
        impl.comm.reduce_add_coalesced, [[X], [X]], 0
    ),
    "tensor, dim, out or streams of comm.scatter": partial(impl.comm.scatter, X, out=[X]),
    "devices or chunk_sizes of comm.scatter": partial(impl.comm.scatter, X, [0], [1, 3]),
    "tensor, chunk_sizes or dim of comm.scatter": partial(impl.comm.scatter, X, [0], [1]),
    "tensor, devices or streams of comm.scatter": partial(impl.comm.scatter, X, [-2]),
    "tensors, dim or destination of comm.gather": partial(impl.comm.gather, [X], 0),
    "tensors, dim or out of comm.gather": partial(impl.comm.gather, [X], 0, out=X),
    "inputs of functions.Broadcast": partial(Broadcast.apply, [0], X),
    "num_inputs of functions.ReduceAddCoalesced": partial(ReduceAddCoalesced.apply, 0, 0, X),
    "grads, num_inputs or destination of functions.ReduceAddCoalesced": partial(
        ReduceAddCoalesced.apply, 0, 1, X, X
    ),
    "target_gpus or chunk_sizes of functions.Scatter": partial(Scatter.apply, [0], [1, 3], 0, X),
    "input, chunk_sizes or dim of functions.Scatter": partial(Scatter.apply, [0], [1], 0, X),
    "inputs or dim of functions.Gather": partial(Gather.apply, "cpu", 2, X),
    "inputs, dim or target_device of functions.Gather": partial(Gather.apply, "cpu", 0, X, X[0]),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.usefixtures("topology")
def test_errors_of_public_functions_name_the_argument(name):
    with pytest.raises(Exception) as caught:
        CALLS[name]()
    assert caught.value.__notes__ == [f"Argument: {name.split(' of ')[0]}"]


@pytest.mark.usefixtures("topology")
def test_scatter_kwargs_reads_an_iterator_of_devices_once():
    x = torch.ones(2)
    inputs, kwargs = impl.scatter_gather.scatter_kwargs((x,), {"x": x}, iter(["cpu", "cpu"]))
    assert [len(inputs), len(kwargs)] == [2, 2]


def test_a_tensor_is_accepted_as_a_sequence_of_its_rows(topology):
    x = torch.arange(4.0, device=topology.device(0)).view(2, 2)
    assert torch.equal(impl.gather(x, topology.device(0)), x.flatten())
    assert torch.equal(impl.comm.reduce_add(x, topology.device(0)), x.sum(0))
