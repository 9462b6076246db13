"""Complex tensors that torch.nn.parallel may read too early, so that it is no baseline for them.

Its Scatter calls ``torch.view_as_complex`` on a copy before it waits for the copy. Where that call
returns a view, it reads nothing. Where it copies and operators are asynchronous, the result may
have old values.
"""

from functools import cache
from typing import Any

import torch

from spec_tests.harness.environment import capabilities
from spec_tests.harness.environment.topology import Topology
from spec_tests.harness.traverse import tensors

__all__ = ["TEXT", "count_if_affected", "take_count"]

#: The text after the number of tests with such calls.
TEXT = (
    "complex tensors are compared with the oracle only, because view_as_complex copies on the "
    "devices, and the Scatter of torch.nn.parallel does not wait for its input"
)
#: The calls since the last `take_count` that are not compared with torch.nn.parallel.
_affected: list[Any] = []


def count_if_affected(call: Any, topology: Topology) -> bool:
    """Return whether torch.nn.parallel may read an argument of ``call`` too early; count it then.

    Args:
        call: A call of the target; see `outcome.Call`.
        topology: The devices.
    """
    if not _reads_early(topology):
        return False
    is_affected = any(tensor.is_complex() for _, tensor in tensors(call.inputs(topology), ""))
    _affected.extend([call] if is_affected else [])
    return is_affected


@cache
def _reads_early(topology: Topology) -> bool:
    if not (capabilities.offers("complex64") and capabilities.offers("asynchronous-operators")):
        return False
    pairs = torch.zeros(1, 2, device=topology.device(0))
    number = torch.view_as_complex(pairs)
    pairs.fill_(1)
    return number.real.item() != 1


def take_count() -> int:
    """Return the number of calls that were counted since the last call of this function."""
    count = len(_affected)
    _affected.clear()
    return count
