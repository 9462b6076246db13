"""Comparison of a stand-in with the primitive of a CUDA build, call by call."""

from collections.abc import Callable
from itertools import zip_longest
from typing import Any
from unittest import mock

import torch
from hypothesis import HealthCheck, Phase, assume, given, settings

from spec_tests.checks.outcome import normalise
from spec_tests.cuda_stand_ins import STAND_INS
from spec_tests.cuda_stand_ins.tests.cuda_build.calls import PrimitiveCall, calls
from spec_tests.cuda_stand_ins.tests.cuda_build.facts import NCCL_FACTS, drop_facts, facts, flatten
from spec_tests.machine.devices import Topology
from spec_tests.strategies.calls import build

DEVICES = Topology("cuda", (0, 1, 2, 3))
#: The primitives of this build.
REAL = {name: getattr(torch._C, name, None) for name in STAND_INS}
#: Texts of the stand-ins' errors for calls that end the process with the real primitives.
UNDEFINED = ("broadcast_coalesced needs", "scatter needs tensors of one dimension")
#: Texts of NCCL's errors. The stand-ins do not imitate NCCL.
NCCL_ERRORS = (
    "Unconvertible NCCL type",
    "all inputs and outputs must be of the same Tensor dtype",
)


def compare(name: str, stand_in: Callable[..., Any], count: int) -> int:
    """Compare ``stand_in`` with the primitive ``name`` in ``count`` calls; return their number.

    Raises:
        AssertionError: An outcome differs. The text has the smallest such call and, for each fact
            that differs, the fact about the real primitive and about ``stand_in``.
    """
    compared = []

    @settings(
        max_examples=count,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink),
    )
    @given(call=calls(name))
    def check(call: PrimitiveCall) -> None:
        found, _ = _outcome(stand_in, call)
        assume(not any(text in str(found) for text in UNDEFINED))
        real, may_use_nccl = _outcome(REAL[name], call)
        assume(not any(text in str(real) for text in NCCL_ERRORS))
        dropped = NCCL_FACTS if may_use_nccl else ()
        differences = _differences(drop_facts(real, dropped), drop_facts(found, dropped))
        assert not differences, f"{call!r}: {differences}"
        compared.append(call)

    # A printed tensor would need kernels.
    with mock.patch.object(torch.Tensor, "__repr__", object.__repr__):
        check()
    return len(compared)


def _differences(real: list[Any], found: list[Any]) -> list[tuple[str, Any, Any]]:
    no_facts: dict[str, Any] = {}
    pairs = zip_longest(real, found, fillvalue=no_facts)
    return [
        (key, a.get(key), b.get(key))
        for a, b in pairs
        for key in a | b
        if a.get(key) != b.get(key)
    ]


def _outcome(primitive: Any, call: PrimitiveCall) -> tuple[list[dict[str, Any]], bool]:
    """Return the outcome of ``call``, and whether NCCL may have made its copies.

    The outcome is the error or the containers of the result, the current device and streams after
    the call, and the facts about the tensors in arguments and result.
    """
    with torch.cuda.device(call.current_device), getattr(torch, call.grad_mode)():
        args = build(call.arguments, DEVICES)
        result = None
        try:
            result = primitive(*args)
            end = str(_containers(result))
        except Exception as error:
            end = f"{type(error).__qualname__}: {normalise(str(error).splitlines()[0])}"
        state = {
            "end": end,
            "current device": torch.cuda.current_device(),
            "streams": [torch.cuda.current_stream(each).stream_id for each in DEVICES.devices],
        }
        devices = {id(tensor): tensor.device for tensor in flatten([args[0], result])}.values()
        may_use_nccl = (
            call.name in ("_broadcast", "_broadcast_out")
            and all(device.type == "cuda" for device in devices)
            and len(devices) == len(set(devices))
        )
        return [state, *facts([args, result])], may_use_nccl


def _containers(result: object) -> Any:
    if isinstance(result, list | tuple):
        return type(result), [_containers(member) for member in result]
    return type(result)
