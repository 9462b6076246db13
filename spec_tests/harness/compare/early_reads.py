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

__all__ = ["may_affect"]


def may_affect(call: Any, topology: Topology) -> bool:
    """Return whether torch.nn.parallel may read an argument of ``call`` too early.

    Args:
        call: A call of the target; see `outcome.Call`.
        topology: The devices.
    """
    return _reads_early(topology) and any(
        tensor.is_complex() for _, tensor in tensors(call.inputs(topology), "")
    )


@cache
def _reads_early(topology: Topology) -> bool:
    if not (capabilities.offers("complex64") and capabilities.offers("asynchronous-operators")):
        return False
    pairs = torch.zeros(1, 2, device=topology.device(0))
    number = torch.view_as_complex(pairs)
    pairs.fill_(1)
    return number.real.item() != 1
