"""The comparison notices a stand-in that differs in one way."""

import pytest
import torch

from spec_tests.cuda_stand_ins import STAND_INS
from spec_tests.cuda_stand_ins.tests.cuda_build.comparison import compare


def error_of_another_class(error):
    return LookupError(str(error))


def error_with_another_text(error):
    return type(error)(f"{error}.")


def with_error(name, change):
    def stand_in(*args):
        try:
            return STAND_INS[name](*args)
        except RuntimeError as error:
            raise change(error) from None

    return stand_in


def with_result(name, change):
    """Return a stand-in whose first copy is ``change(copy)``."""

    def stand_in(*args):
        result = STAND_INS[name](*args)
        if isinstance(result, list):
            return [*map(change, result[:1]), *result[1:]]
        return change(result)

    return stand_in


def checking_dim_first(tensor, devices, sizes, dim, streams):
    if isinstance(tensor, torch.Tensor) and isinstance(dim, int) and dim >= max(tensor.dim(), 1):
        STAND_INS["_scatter"](tensor, [0], None, dim, None)
    return STAND_INS["_scatter"](tensor, devices, sizes, dim, streams)


def column_major(tensor):
    """Return ``tensor``, whose last two dimensions change places in memory."""
    if tensor.dim() >= 2:
        tensor.data = tensor.mT.clone(memory_format=torch.contiguous_format).mT
    return tensor


def without_history(tensor):
    return tensor.detach() if tensor.grad_fn is not None else tensor


def raise_version(tensor):
    with torch.no_grad():
        return tensor.zero_()


#: Name of a change -> the primitive, the changed stand-in, and a fact that differs.
CHANGES = {
    "class": ("_scatter", with_error("_scatter", error_of_another_class), "end"),
    "text": ("_gather", with_error("_gather", error_with_another_text), "end"),
    "order": ("_scatter", checking_dim_first, "end"),
    "stride": ("_gather", with_result("_gather", column_major), "layout"),
    "version": ("_scatter", with_result("_scatter", raise_version), "version"),
    "alias": ("_scatter", with_result("_scatter", torch.clone), "shares_memory"),
    "device": ("_gather", with_result("_gather", lambda copy: copy.to("cuda:3")), "device"),
    "dtype": ("_gather", with_result("_gather", lambda copy: copy.to(torch.float64)), "dtype"),
    "container": (
        "_broadcast_out",
        lambda *args: tuple(STAND_INS["_broadcast_out"](*args)),
        "end",
    ),
    "history": ("_broadcast", with_result("_broadcast", without_history), "graph"),
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_stand_in_is_noticed(change):
    name, stand_in, fact = CHANGES[change]
    with pytest.raises(AssertionError, match=f"\\('{fact}', "):
        compare(name, stand_in, 2000)
