"""impl._replica.compiled: the functions that are compiled for the replicas."""

import pytest
from torch import nn

from impl._replica import compiled


class Arguments(nn.Module):
    """A module that returns its arguments."""

    def forward(self, *args, **kwargs):
        return args, kwargs


@pytest.mark.parametrize("function", [compiled._call_wrapped, compiled._call_in_place])
def test_functions_to_compile_pass_all_arguments_to_the_replica(function):
    assert function(Arguments(), (1,), {"key": 2}) == ((1,), {"key": 2})
