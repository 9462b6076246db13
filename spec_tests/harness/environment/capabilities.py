"""The features and dtypes that the devices under test offer.

The suite tries each feature and dtype (`back_end`). Strategies draw only dtypes that the devices
offer. A test that needs a missing feature or dtype is not-run.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import torch

from spec_tests.harness.environment import back_end, probes
from spec_tests.harness.environment.back_end import dtype_name
from spec_tests.harness.environment.probes import Finding
from spec_tests.harness.environment.topology import Topology, not_run

__all__ = [
    "NAMES",
    "Capabilities",
    "dtype_name",
    "empty_sizes",
    "find",
    "in_use",
    "offered",
    "offered_groups",
    "offers",
    "require",
    "use",
]


#: The names of all features and dtypes that a test may need.
NAMES = (*back_end.FEATURES, *map(dtype_name, back_end.DTYPES))


@dataclass(frozen=True)
class Capabilities:
    """The features and dtypes that the devices of a run offer.

    Args:
        topology: The devices.
        features: Names of `back_end.FEATURES`.
        dtypes: The dtypes in which the devices compute.
        errors: The names of the missing features and dtypes, by the text of their errors.
        broken: The findings about required functions that are missing or wrong.
        warnings: The first lines of the warnings that the back end shows.
    """

    topology: Topology
    features: frozenset[str]
    dtypes: tuple[torch.dtype, ...]
    errors: Mapping[str, str]
    broken: tuple[Finding, ...]
    warnings: frozenset[str]

    def offers(self, name: str) -> bool:
        """Return whether ``name``, a feature or the name of a dtype, is offered."""
        return name in self.features or name in map(dtype_name, self.dtypes)

    def summary(self) -> str:
        """Return one line that names the missing features and dtypes."""
        missing = [name for name in NAMES if not self.offers(name)]
        return f"all except {', '.join(missing)}" if missing else "all"


@cache
def find(
    topology: Topology, allowed: Collection[str] | None = None, without: Collection[str] = ()
) -> Capabilities:
    """Try all features and dtypes on the devices of ``topology``; return those that work.

    Args:
        topology: The devices.
        allowed: The names of the dtypes to use; None for all.
        without: The names of features and dtypes that are neither tried nor used.

    Raises:
        ValueError: ``allowed`` has a name that is not one of `back_end.DTYPES`.
    """
    dtypes = {dtype_name(dtype): dtype for dtype in back_end.DTYPES}
    unknown = set(allowed or ()).difference(dtypes)
    if unknown:
        raise ValueError(f"{min(unknown)!r} is not one of the dtypes {', '.join(dtypes)}")
    names = [check.name for check in back_end.CHECKS if check.name not in without]
    findings = probes.find_all(back_end.run_check, names, topology)
    used = [each for each in dtypes if each in (allowed or dtypes) and each not in without]
    of_dtypes = probes.find_all(back_end.try_dtype, used, topology)
    optional = [each for each in findings if each.name in back_end.FEATURES]
    broken = [each for each in findings if each not in optional and each.text]
    offered = [dtypes[each.name] for each in of_dtypes if each.state == "there"]
    # If several dtypes have the same error, the first of them counts: float64, not complex128.
    errors = {each.text: each.name for each in (*optional, *reversed(of_dtypes)) if each.text}
    for each in broken:  # A test that fails with this error is not excused.
        errors.pop(each.text, None)
    return Capabilities(
        topology,
        frozenset(each.name for each in optional if each.state == "there"),
        tuple(dtype for dtype in offered if _is_declared(dtype, topology)),
        errors,
        tuple(broken),
        frozenset(text for each in (*findings, *of_dtypes) for text in each.warnings),
    )


def _is_declared(dtype: torch.dtype, topology: Topology) -> bool:
    """Return False if the back end declares its dtypes, and ``dtype`` is not among them."""
    try:
        declared = torch.accelerator.get_device_capability(topology.device(0))["supported_dtypes"]
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
