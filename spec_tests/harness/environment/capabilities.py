"""The features and dtypes that the devices under test offer.

The suite tries each feature and dtype (`back_end`). Strategies draw only dtypes that the devices
offer. A test that needs a missing feature or dtype is not-run.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import torch

from spec_tests.harness.environment import back_end
from spec_tests.harness.environment.discarded_output import without_output
from spec_tests.harness.environment.topology import Topology, not_run

__all__ = [
    "Capabilities",
    "empty_sizes",
    "find",
    "in_use",
    "offered",
    "offered_groups",
    "offers",
    "require",
    "use",
]


@dataclass(frozen=True)
class Capabilities:
    """The features and dtypes that the devices of a run offer.

    Args:
        device: One of the devices.
        features: Names of `back_end.FEATURES`.
        dtypes: The dtypes in which the devices compute.
        errors: The names of the missing features and dtypes, by the text of their errors.
    """

    device: torch.device
    features: frozenset[str]
    dtypes: tuple[torch.dtype, ...]
    errors: Mapping[str, str]

    def offers(self, name: str) -> bool:
        """Return whether ``name``, a feature or the name of a dtype, is offered."""
        return name in self.features or name in map(dtype_name, self.dtypes)

    def summary(self) -> str:
        """Return one line that names the missing features and dtypes."""
        names = [*back_end.FEATURES, *map(dtype_name, back_end.DTYPES)]
        missing = [name for name in names if not self.offers(name)]
        return f"all except {', '.join(missing)}" if missing else "all"


def dtype_name(dtype: torch.dtype) -> str:
    """Return the name of ``dtype`` without ``torch.``."""
    return str(dtype).removeprefix("torch.")


@cache
def find(topology: Topology, allowed: Collection[str] | None = None) -> Capabilities:
    """Try all features and dtypes on the devices of ``topology``; return those that work.

    Args:
        topology: The devices.
        allowed: The names of the dtypes to use; None for all.

    Raises:
        ValueError: ``allowed`` has a name that is not one of `back_end.DTYPES`.
    """
    unknown = set(allowed or ()).difference(map(dtype_name, back_end.DTYPES))
    if unknown:
        known = ", ".join(map(dtype_name, back_end.DTYPES))
        raise ValueError(f"{min(unknown)!r} is not one of the dtypes {known}")
    device = topology.device(0)
    with without_output():
        findings = list(back_end.find_all(topology.devices))
        dtype_errors = {dtype: back_end.try_dtype(dtype, device) for dtype in back_end.DTYPES}
    features = {finding.check.name for finding in findings if finding.state == "there"}
    dtypes = tuple(
        dtype
        for dtype, error in dtype_errors.items()
        if error is None
        and _is_declared(dtype, device)
        and (allowed is None or dtype_name(dtype) in allowed)
    )
    errors = {finding.text: finding.check.name for finding in findings if finding.text}
    # If several dtypes have the same error, the first of them counts: float64, not complex128.
    for dtype, text in reversed(dtype_errors.items()):
        errors |= {text: dtype_name(dtype)} if text else {}
    features.intersection_update(back_end.FEATURES)
    return Capabilities(device, frozenset(features), dtypes, errors)


def _is_declared(dtype: torch.dtype, device: torch.device) -> bool:
    """Return False if the back end declares its dtypes, and ``dtype`` is not among them."""
    try:
        declared = torch.accelerator.get_device_capability(device)["supported_dtypes"]
    except (AttributeError, KeyError, RuntimeError):  # not implemented by the back end
        return True
    return not declared or dtype in declared


_used: list[Capabilities] = []


def use(capabilities: Capabilities) -> None:
    """Make strategies draw from ``capabilities``."""
    _used[:] = [capabilities]


def in_use() -> Capabilities | None:
    """Return the capabilities that strategies draw from; None outside a run of the suite."""
    return _used[0] if _used else None


def offered(dtypes: Sequence[torch.dtype]) -> list[torch.dtype]:
    """Return those of ``dtypes`` that the devices offer. If there are none, the test is not-run.

    Outside a run of the suite, all dtypes count as offered.
    """
    found = [dtype for dtype in dtypes if not _used or dtype in _used[0].dtypes]
    if not found:
        not_run(f"the devices offer none of {', '.join(map(dtype_name, dtypes))}")
    return found


def offered_groups(groups: Sequence[Sequence[torch.dtype]]) -> list[Sequence[torch.dtype]]:
    """Return those of ``groups`` with a dtype that the devices offer."""
    known = set(offered([dtype for group in groups for dtype in group]))
    return [group for group in groups if known.intersection(group)]


def offers(name: str) -> bool:
    """Return whether the devices offer ``name``, a feature or the name of a dtype."""
    return not _used or _used[0].offers(name)


def empty_sizes() -> tuple[int, ...]:
    """Return ``(0,)``, or an empty tuple if the devices compute empty batches wrong."""
    return (0,) if offers("empty-batches") else ()


def require(name: str) -> None:
    """End the test as not-run if the devices do not offer ``name``."""
    if not offers(name):
        not_run(f"the devices lack {name}")
