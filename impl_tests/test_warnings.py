"""impl._warnings: a warning points to the line that calls impl."""

import inspect

import pytest
import torch
from torch import nn

from impl import DataParallel


class RefusesIteration(nn.Module):
    """A module that returns an object whose iteration raises an error."""

    def forward(self, x):
        """Return the object."""
        return Refusing()


class Refusing:
    """An object that has an iterator, and refuses to return it."""

    def __iter__(self):
        raise RuntimeError("refused")


class Closes(nn.Module):
    """A module with an attribute that is a closure over a layer."""

    def __init__(self):
        super().__init__()
        self.layer = layer = nn.Linear(2, 2)
        self.function = lambda x: layer(x)

    def forward(self, x):
        """Return the result of the closure."""
        return self.function(x)


@pytest.mark.parametrize(
    ("kind", "text"), [(RefusesIteration, "Refusing among the outputs"), (Closes, "The function")]
)
def test_a_warning_of_a_forward_points_to_its_call(kind, text):
    wrapper = DataParallel(kind(), ["cpu"] * 2)
    with pytest.warns(UserWarning, match=text) as caught:
        wrapper(torch.ones(4, 2))
    line = inspect.currentframe().f_lineno - 1
    assert [(each.filename, each.lineno) for each in caught] == [(__file__, line)]
