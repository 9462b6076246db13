"""The part of a run that the register of torch.nn.parallel describes."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from spec_tests.harness.conformance import register
from spec_tests.harness.conformance.register import Divergence

__all__ = ["INHERITED", "find_inherited"]

INHERITED = "torch.nn.parallel"


def find_inherited(tests: Sequence[Mapping[str, str]]) -> tuple[list[str], set[str]]:
    """Return what a register needs if it inherits the records of torch.nn.parallel.

    Args:
        tests: The tests and their verdicts.

    Returns:
        The tests to list as ``repaired``, and the failed tests that the inherited records explain.
    """
    records = register.load(register.FOLDER / f"{INHERITED}.toml")
    recorded = {test for record in records if record.applies for test in record.tests}
    runs: dict[str, list[Mapping[str, str]]] = {}
    for test in tests:
        node_id = test["test"].removeprefix("spec_tests/")
        for name in {node_id, node_id.split("[", 1)[0]} & recorded:
            runs.setdefault(name, []).append(test)
    repaired, explained = set(), set()
    for name, found in runs.items():
        expecting = [record for record in records if record.applies and name in record.tests]
        failed = {test["test"] for test in found if test["verdict"] == "fail"}
        if _is_repaired(found, expecting):
            repaired.add(name)
        else:
            explained |= failed
    return sorted(repaired), explained


def _is_repaired(tests: Iterable[Mapping[str, str]], expecting: Collection[Divergence]) -> bool:
    """Return whether a test passes, or fails otherwise than the records expect."""
    return any(
        test["verdict"] == "pass"
        or (test["verdict"] == "fail" and not any(_explains(each, test) for each in expecting))
        for test in tests
    )


def _explains(record: Divergence, test: Mapping[str, str]) -> bool:
    kind, _, text = test.get("failure", "").partition(": ")
    return record.explains_text(kind, f"{text}\n{test.get('difference', '')}")
