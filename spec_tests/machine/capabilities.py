"""The features and dtypes that the devices under test offer.

The suite tries each clause about devices (`spec_tests.devices`), and each dtype. Strategies draw
only dtypes that the devices offer. A test that needs a missing feature or dtype is not-run.

A test of a clause about devices has no argument besides `topology`, except those that Hypothesis
draws. Its assertions have messages of one line, which ``doctor`` prints.
"""

import importlib
import os
import pkgutil
import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from traceback import walk_tb
from unittest.mock import patch

import pytest
import torch
from hypothesis import HealthCheck, Phase, settings
from torch import Tensor

from spec_tests.failure import SUITE
from spec_tests.machine import clauses, probes
from spec_tests.machine.clauses import Clause
from spec_tests.machine.devices import BACK_ENDS, Topology, not_run
from spec_tests.machine.probes import Finding
from spec_tests.machine.verdicts import NOT_RUN

#: The dtypes that strategies draw from, and others that tests use.
DTYPES = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.complex64,
    torch.complex128,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.uint16,
    torch.uint32,
    torch.uint64,
    torch.bool,
)
#: Dtypes that tests only copy. PyTorch itself does not compute with them.
_COPIED = {torch.uint16, torch.uint32, torch.uint64}
#: The settings of a probe: few examples, and no time to find a smaller one that fails.
_FEW = settings(
    max_examples=3,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)


def dtype_name(dtype: torch.dtype) -> str:
    """Return the name of ``dtype`` without ``torch.``."""
    return str(dtype).removeprefix("torch.")


#: The feature that tests of other features need.
NEW_STREAMS = "new-streams"
#: PyTorch's error for an operator that the back end lacks. The groups are the operator and
#: the back end.
_OPERATOR = re.compile(r"Could not run '([^']+)' with arguments from the '([^']+)' backend")
#: Libraries. A frame of a library does not tell whether the suite or the target made a call.
_LIBRARIES = {"torch", "_pytest", "pytest", "hypothesis", "numpy", *sys.stdlib_module_names}


@cache
def device_clauses() -> dict[str, Clause]:
    """Return the clauses about devices by id."""
    found = clauses.load()
    return {name: clause for name, clause in found.items() if clause.chapter == "devices"}


def features() -> tuple[str, ...]:
    """Return the optional features of devices. Each is the name of a set of clauses."""
    return tuple(dict.fromkeys(c.feature for c in device_clauses().values() if c.feature))


def names() -> tuple[str, ...]:
    """Return the names of all features and dtypes that a test may need."""
    return *features(), *map(dtype_name, DTYPES)


def switched_off(config: pytest.Config) -> list[str]:
    """Return the features and dtypes that a run on real devices does not use.

    Raises:
        pytest.UsageError: there is no such feature.
    """
    given: list[str] = config.getoption("--without")
    unknown = [name for name in given if name not in names()]
    if unknown:
        known = ", ".join(names())
        raise pytest.UsageError(f"--without: no feature has the name {unknown[0]!r}; use {known}")
    return given


@dataclass(frozen=True)
class Capabilities:
    """The features and dtypes that the devices of a run offer.

    Args:
        topology: The devices.
        features: Features of which no clause is missing or wrong.
        dtypes: The dtypes in which the devices compute.
        findings: The findings about clauses and dtypes.
        errors: The names of the missing features and dtypes, by the text of their errors.
        broken: The findings about clauses that are wrong, or that are missing and required.
    """

    topology: Topology
    features: frozenset[str]
    dtypes: tuple[torch.dtype, ...]
    findings: tuple[Finding, ...] = ()
    errors: Mapping[str, str] = field(default_factory=dict)
    broken: tuple[Finding, ...] = ()

    @property
    def warnings(self) -> frozenset[str]:
        """The first lines of the warnings that the back end shows."""
        return frozenset(text for finding in self.findings for text in finding.warnings)

    def offers(self, name: str) -> bool:
        """Return whether ``name``, a feature or the name of a dtype, is offered."""
        return name in self.features or name in map(dtype_name, self.dtypes)

    def summary(self) -> str:
        """Return one line that names the missing features and dtypes."""
        missing = [name for name in names() if not self.offers(name)]
        return f"all except {', '.join(missing)}" if missing else "all"


@cache
def find(topology: Topology, without: Collection[str] = ()) -> Capabilities:
    """Try all features and dtypes on the devices of ``topology``; return those that work.

    Args:
        topology: The devices.
        without: The names of features and dtypes that are neither tried nor used.

    Raises:
        pytest.UsageError: Each dtype raises an error, as if a server of the devices does not run.
    """
    dtypes = {dtype_name(dtype): dtype for dtype in DTYPES}
    feature_of = {
        name: clause.feature
        for name, clause in device_clauses().items()
        if clause.feature not in without
    }
    tried = [name for name in (*dtypes, NEW_STREAMS) if name not in without]
    basis = probes.find_all(try_basis, tried, topology)
    of_dtypes = [finding for finding in basis if finding.name != NEW_STREAMS]
    if of_dtypes and all(finding.state == "missing" for finding in of_dtypes):
        raise pytest.UsageError(f"{topology.device(0)} does not work: {of_dtypes[0].text}")
    working = tuple(finding.name for finding in basis if finding.state == "there")
    findings = probes.find_all(ClauseProbe(working), [*feature_of], topology)
    failed = [finding for finding in findings if finding.state in ("missing", "wrong")]
    lacking = [finding for finding in failed if feature_of[finding.name]]
    broken = [each for each in failed if each.state == "wrong" or not feature_of[each.name]]
    # If several dtypes have the same error, the first of them counts: float64, not complex128.
    errors = {
        finding.text: feature_of[finding.name] for finding in lacking if finding.state == "missing"
    }
    errors |= {finding.text: finding.name for finding in reversed(of_dtypes) if finding.text}
    for finding in broken:  # A test that fails with this error is not excused.
        errors.pop(finding.text, None)
    missing = {feature_of[finding.name] for finding in lacking}
    return Capabilities(
        topology,
        frozenset(feature_of.values()) - {"", *missing},
        tuple(
            dtype
            for name, dtype in dtypes.items()
            if name in working and _is_declared(dtype, topology)
        ),
        (*findings, *of_dtypes),
        errors,
        tuple(broken),
    )


def _is_declared(dtype: torch.dtype, topology: Topology) -> bool:
    """Return False if the back end declares its dtypes, and ``dtype`` is not among them."""
    try:
        declared = torch.accelerator.get_device_capability(topology.device(0))["supported_dtypes"]
    except (AttributeError, KeyError, RuntimeError):  # not implemented by the back end
        return True
    return not declared or dtype in declared


def try_basis(name: str, topology: Topology) -> None:
    """Try a dtype, or create a stream: tests of other features need both.

    Raises:
        AssertionError: A value differs from the CPU's.
    """
    if name == NEW_STREAMS:
        torch.Stream(topology.device(0))
        return
    ones = torch.ones(3, dtype=getattr(torch, name))
    computed, expected = _compute(ones.to(topology.device(0))), _compute(ones)
    if not all(map(torch.equal, (result.cpu() for result in computed), expected)):
        raise AssertionError(f"wrong values of {ones.dtype}")


def _compute(vector: Tensor) -> list[Tensor]:
    """Return a copy of ``vector``, and sums and products if PyTorch computes in its dtype."""
    results = [vector.clone()]
    if vector.dtype not in _COPIED:
        results.append((vector + torch.ones_like(vector)) * vector)
    if vector.is_complex():
        results.append(torch.view_as_real(vector).clone())
    if vector.is_floating_point() or vector.is_complex():
        results.append(vector[None] @ vector[:, None])
        leaf = vector.clone().requires_grad_()
        results += torch.autograd.grad(leaf * leaf, leaf, torch.ones_like(leaf))
    return results


@cache
def _device_tests() -> dict[str, list[Callable[..., None]]]:
    """Return the tests of each clause about devices."""
    tests: dict[str, list[Callable[..., None]]] = {}
    for module in pkgutil.iter_modules([str(SUITE / "devices")], "spec_tests.devices."):
        for test in vars(importlib.import_module(module.name)).values():
            for mark in getattr(test, "pytestmark", ()):
                tests.setdefault(mark.args[0], []).append(test)
    return tests


@dataclass(frozen=True)
class ClauseProbe:
    """Runs the tests of a clause about devices.

    Args:
        basis: The names of the dtypes that the tests may use, and `NEW_STREAMS` if the devices
            have them.
    """

    basis: tuple[str, ...]

    def __call__(self, name: str, topology: Topology) -> None:
        """Run the tests of the clause ``name`` with few examples."""
        usable = {*features()} - ({NEW_STREAMS} - {*self.basis})
        dtypes = tuple(dtype for dtype in DTYPES if dtype_name(dtype) in self.basis)
        used = [Capabilities(topology, frozenset(usable), dtypes)]
        with patch(f"{__name__}._used", used):
            # Hypothesis has no public function that runs a decorated test with other settings.
            for test in _device_tests()[name]:
                with patch.object(test, "_hypothesis_internal_use_settings", _FEW, create=True):
                    test(topology=topology)


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
    usable = [dtype for dtype in dtypes if not _used or dtype in _used[0].dtypes]
    if not usable:
        not_run(f"the devices offer none of {', '.join(map(dtype_name, dtypes))}")
    return usable


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


def skip_missing(
    call: pytest.CallInfo[None], report: pytest.TestReport, target: str, tests: str = "spec_tests"
) -> bool:
    """Skip a failed test whose error says that the devices lack a feature; return whether it does.

    The test fails nevertheless if the target itself uses the feature. ``tests`` is the package of
    the test.
    """
    if not report.failed or call.excinfo is None or not _used:
        return False
    missing = find_missing(call.excinfo.value, _used[0], target, tests)
    if missing is not None:
        report.outcome = "skipped"
        path, line, _ = report.location
        report.longrepr = (path, line or 0, f"{NOT_RUN}the devices lack {missing}")
    return missing is not None


def find_missing(
    error: BaseException, capabilities: Capabilities, target: str, tests: str = "spec_tests"
) -> str | None:
    """Return the missing feature or operator that the tests used; None for any other error."""
    while error.__cause__ is not None:
        error = error.__cause__
    text = str(error).partition("\n")[0]
    operator = _OPERATOR.search(text)
    # An error about another back end, such as Meta, is an error of the target.
    accelerator = capabilities.topology.accelerator
    if operator and operator[2].lower() in (accelerator, f"sparse{accelerator}"):
        missing: str | None = operator[1]
    else:
        missing = capabilities.errors.get(text)
    # The innermost frame outside the libraries, and back ends that are written in Python.
    back_ends = (each.partition(".")[0] for each in os.environ.get(BACK_ENDS, "").split(","))
    libraries = _LIBRARIES.union(back_ends)
    found = [str(frame.f_globals.get("__name__", "")) for frame, _ in walk_tb(error.__traceback__)]
    own = [
        name
        for name in found
        if _is_below(name, target) or name.partition(".")[0] not in libraries
    ]
    is_of_tests = own and any(_is_below(own[-1], name) for name in ("spec_tests", tests))
    return missing if is_of_tests else None


def _is_below(name: str, package: str) -> bool:
    return f"{name}.".startswith(f"{package}.")
