"""impl._warnings: a warning points to the line that calls impl."""

import inspect

import pytest
import torch
from torch import nn

from impl import DataParallel
from spec_tests.strategies.small_modules import Calls


class Refusing:
    """An object that has an iterator, and refuses to return it."""

    def __iter__(self):
        raise RuntimeError("refused")


def make_closure():
    """Return a module with an attribute that is a closure over a layer."""
    layer = nn.Linear(2, 2)
    return Calls(lambda module, x: module.closure(x), layer=layer, closure=lambda x: layer(x))


@pytest.mark.parametrize(
    ("module", "text"),
    [
        (Calls(lambda *_: Refusing()), "Refusing among the outputs"),
        (make_closure(), "The function"),
    ],
)
def test_a_warning_of_a_forward_points_to_its_call(module, text):
    wrapper = DataParallel(module, ["cpu"] * 2)
    with pytest.warns(UserWarning, match=text) as caught:
        wrapper(torch.ones(4, 2))
    line = inspect.currentframe().f_lineno - 1
    assert [(each.filename, each.lineno) for each in caught] == [(__file__, line)]
