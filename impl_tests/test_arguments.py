"""impl._arguments: errors that name the argument."""

from functools import partial
from unittest.mock import Mock

import numpy as np
import pytest
import torch

import impl
from impl._arguments import argument, as_int, as_tensors


class NoNotesError(ValueError):
    def add_note(self, note):
        raise LookupError(note)


@pytest.mark.parametrize("names", ["x or y", lambda: "x or y"])
def test_an_error_gets_a_note_and_keeps_its_text(names):
    error = KeyError("text")
    with pytest.raises(KeyError) as caught, argument(names):
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
    error.add_note("another note")
    for _ in range(2):  # The error may be raised again.
        with pytest.raises(ValueError, match="text"), argument("outer"), argument("inner"):
            raise error
    assert error.__notes__ == ["another note", "Argument: outer"]


def test_an_out_of_memory_error_gets_no_note():
    error = torch.OutOfMemoryError("text")
    with pytest.raises(torch.OutOfMemoryError), argument("x"):
        raise error
    assert not hasattr(error, "__notes__")


@pytest.mark.parametrize("value", [True, 1.0, None, "1", np.bool_(True)])
def test_as_int_refuses_other_objects_than_integers(value):
    with pytest.raises(TypeError, match=f"dim must be an int, not {type(value).__name__}"):
        as_int("dim", value)


@pytest.mark.parametrize("value", [torch.tensor([1, 1]), torch.tensor(1.0)])
def test_as_int_refuses_a_tensor_without_an_integer_and_names_the_argument(value):
    with pytest.raises(TypeError) as caught:
        as_int("dim", value)
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


@pytest.mark.parametrize(
    ("call", "note"),
    [
        (partial(impl.scatter, torch.ones(2), 5), "Argument: target_gpus"),
        (partial(impl.scatter, torch.ones(2), [0, 1], chunk_sizes=1), "Argument: chunk_sizes"),
        (partial(impl.comm.broadcast, torch.ones(2), [object()]), "Argument: devices"),
        (partial(impl.comm.gather, [torch.ones(2)], 0, object()), "Argument: destination"),
        (partial(impl.parallel_apply, 5, [1]), "Argument: modules or inputs"),
        (
            partial(impl.parallel_apply, [abs], [1], devices=[1.5]),
            "Argument: inputs, kwargs_tup or devices",
        ),
        (partial(impl.replicate, 5, [0, 1]), "Argument: network"),
    ],
)
@pytest.mark.usefixtures("topology")
def test_errors_of_public_functions_name_the_argument(call, note):
    with pytest.raises((TypeError, AttributeError, ValueError)) as caught:
        call()
    assert note in caught.value.__notes__


@pytest.mark.usefixtures("topology")
def test_scatter_kwargs_reads_an_iterator_of_devices_once():
    x = torch.ones(2)
    inputs, kwargs = impl.scatter_gather.scatter_kwargs((x,), {"x": x}, iter(["cpu", "cpu"]))
    assert [len(inputs), len(kwargs)] == [2, 2]
