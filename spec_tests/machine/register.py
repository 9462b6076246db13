"""Registers: TOML files with the known divergences of a target.

A record turns the failure of its tests into the verdict *known*. If one of the tests passes, the
run fails, so that records of repaired divergences are removed.

spec_tests/registers/README.md describes the keys. ``kind`` and ``versions`` before the records are
for all records that have none of their own.
"""

import functools
import json
import os
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import InvalidVersion, Version

from spec_tests.failure import SUITE, Failure
from spec_tests.machine import clauses, input_files
from spec_tests.machine.clauses import Clause
from spec_tests.machine.target import PARTS, REFERENCE, Target
from spec_tests.machine.verdicts import TestVerdict

FOLDER = SUITE / "registers"
#: The keys of the records that apply to a test, and of the names that a run's register declares.
RECORDS = pytest.StashKey[list["Divergence"]]()
LACKS = pytest.StashKey[frozenset[str]]()
RECORD_KINDS = ("fix", "extends", "defined", "target-bug", "back-end-bug", "suite-bug")
#: The kind of a record that ``draft`` has written, if it has no other.
DRAFTED_KIND = "target-bug"
#: The words for a clause that torch.nn.parallel violates, and for one that it violates by other
#: facts than a run.
VIOLATED = f"{REFERENCE} violates it"
OTHERWISE = "in another way"
#: An entry of ``expects`` that says nothing about the error.
_ONLY_A_CLASS = re.compile(r"error[\w ]*: *(?!missing)\w*:? *")


@dataclass(frozen=True)
class Divergence:
    """A record of a known divergence.

    Args:
        id: Its name, such as ``SG-1``.
        kind: ``fix`` (torch.nn.parallel is wrong), ``extends`` (it refuses a call that the
            specification supports), ``defined`` (its behaviour is undefined),
            ``target-bug``, ``back-end-bug`` (PyTorch itself is wrong on this accelerator) or
            ``suite-bug``.
        clause: The clause that the target violates, or several.
        tests: Node ids of the failing tests, relative to ``spec_tests/``. Without parameters an id
            stands for all of them.
        expects: The expected facts, as `Failure.fact_texts` has them. All facts of a failure must
            be among them. A text of an error may be a part of it. Empty in a register of an
            earlier suite.
        observed: The behaviour of the target.
        threads: Links of public threads.
        versions: The versions to which the record applies, such as ``torch>=2.11``; empty for all.
        reason: Why the target is left as it is, or an empty text.
        file: The register.
        repaired: Single cases of the tests that the register that inherits the record excepts.
    """

    id: str
    kind: str
    clause: str | tuple[str, ...]
    tests: tuple[str, ...]
    observed: str
    expects: tuple[str, ...] = ()
    threads: tuple[str, ...] = ()
    versions: str = ""
    reason: str = ""
    file: str = ""
    repaired: frozenset[str] = frozenset()

    @property
    def clauses(self) -> tuple[str, ...]:
        """The clauses that the target violates."""
        return (self.clause,) if isinstance(self.clause, str) else self.clause

    @property
    def name(self) -> str:
        """The register and the id, for the text of an error."""
        return f"{self.file}: divergence {self.id}"

    def __post_init__(self) -> None:
        if self.kind not in RECORD_KINDS:
            raise ValueError(f"kind {self.kind!r} is none of {RECORD_KINDS}")
        if not self.clauses:
            raise ValueError("there are no clauses")
        if not self.tests:
            raise ValueError("there are no tests")
        for fact in self.expects:
            if _ONLY_A_CLASS.fullmatch(fact):
                raise ValueError(f"{fact!r} does not say what the error is")
        if self.versions:
            _parse_versions(self.versions)

    @functools.cached_property
    def applies(self) -> bool:
        """Whether the record applies to the installed version."""
        return not self.versions or is_satisfied(self.versions)

    def applies_to(self, test: str) -> bool:
        """Return whether the record applies to one of its tests in the installed version."""
        return self.applies and test not in self.repaired


@dataclass(frozen=True)
class Tables:
    """A register as its file has it: the keys before the first record, and the records.

    README.md of the registers describes the keys.
    """

    inherits: str = ""
    repaired: list[str] = field(default_factory=list)
    lacks: list[str] = field(default_factory=list)
    kind: str = ""
    versions: str = ""
    titles: dict[str, str] = field(default_factory=dict)
    drafted: list[dict[str, Any]] = field(default_factory=list)
    divergence: list[dict[str, Any]] = field(default_factory=list)


def read_tables(path: Path) -> dict[str, Any]:
    """Return the tables of a register.

    Raises:
        input_files.RefusedError: The file cannot be read, has another shape, or an unknown key.
    """
    tables = input_files.read_toml(path, Tables)
    if unknown := tables.keys() - Tables.__dataclass_fields__.keys():
        hint = clauses.hint(min(unknown), Tables.__dataclass_fields__)
        raise input_files.refuse(path, f"no register has the key {min(unknown)!r}{hint}")
    return tables


def load(
    path: Path, specification: Mapping[str, Clause] | None = None, folder: Path = FOLDER
) -> list[Divergence]:
    """Return the records of a register, inherited ones first.

    Args:
        path: The register.
        specification: All clauses by id; None to accept records of any clause.
        folder: The folder of the registers that may be inherited.

    Raises:
        pytest.UsageError: the file cannot be read, a record lacks a field or has an unknown one,
            or its clause is unknown.
    """
    tables = read_tables(path)
    default: dict[str, Any] = {"kind": DRAFTED_KIND, "observed": ""}
    default |= {key: tables[key] for key in ("kind", "versions") if key in tables}
    own = [_parse_record({**default, **table}, path) for table in tables.get("divergence", [])]
    default["reason"] = "drafted, not examined"
    own += [_parse_record({**default, **table}, path) for table in tables.get("drafted", [])]
    for record in own:
        for name in record.clauses:
            if specification is not None and name not in specification:
                hint = clauses.hint(name, specification)
                raise input_files.refuse(record.name, f"no clause has the name {name}{hint}")
    return [*inherited_records(tables, path, folder), *own]


def inherited_records(tables: Mapping[str, Any], path: Path, folder: Path) -> list[Divergence]:
    """Return the records of the register that ``tables`` inherits, without repaired tests."""
    if "inherits" not in tables:
        return []
    repaired = set(tables.get("repaired", ()))
    name = f"{tables['inherits']}.toml"
    if name not in os.listdir(folder) or (folder / name).resolve() == path.resolve():
        text = f"the suite has no other register {tables['inherits']!r}, which it inherits"
        raise input_files.refuse(path, text)
    records = load(folder / name, folder=folder)
    inherited = {test for record in records for test in record.tests}
    for test in sorted(repaired):
        if inherited.isdisjoint((test, without_parameters(test))):
            raise input_files.refuse(path, f"no inherited record names {test}")
    left = [tuple(test for test in record.tests if test not in repaired) for record in records]
    return [
        replace(
            record,
            tests=tests,
            repaired=frozenset(case for case in repaired if without_parameters(case) in tests),
        )
        for record, tests in zip(records, left, strict=True)
        if tests
    ]


def _parse_record(table: dict[str, Any], path: Path) -> Divergence:
    source = f"{path}: divergence {table.get('id')}"
    unknown = table.keys() - (Divergence.__dataclass_fields__.keys() - {"file", "repaired"})
    if unknown:
        name = min(unknown)
        # TOML takes a key of the register that follows a record for one of the record.
        hint = (
            "; keys of a register stand before its records"
            if name in Tables.__dataclass_fields__
            else clauses.hint(name, Divergence.__dataclass_fields__)
        )
        raise input_files.refuse(source, f"no record has the key {name!r}{hint}")
    return input_files.convert({**table, "file": str(path)}, Divergence, source)


def require_expects(records: Iterable[Divergence]) -> None:
    """Check that each record says which facts it expects.

    Raises:
        pytest.UsageError: A record is of an earlier suite.
    """
    for record in records:
        if not record.expects:
            command = f"parallel-conformance draft VERDICTS --divergences {record.file}"
            raise pytest.UsageError(
                f"{record.name} is of an earlier suite: it lacks 'expects'. Run the suite "
                f"with --verdicts and without this register; `{command}` converts it"
            )


def assign_records(
    items: Iterable[pytest.Item],
    records: Iterable[Divergence],
    root: Path,
    *,
    whole: bool,
    all_cases: bool = False,
) -> None:
    """Store, for each test, the records that expect its failure in the installed version.

    Args:
        items: The collected tests.
        records: The records of the register.
        root: The folder to which the node ids of records are relative.
        whole: Whether the whole suite was collected, so that each recorded case must exist.
        all_cases: Whether all cases of each collected test were collected.

    Raises:
        pytest.UsageError: A record, or ``repaired``, names a test that does not exist, or one of
            its cases, if these were collected.
    """
    records_of: dict[str, list[Divergence]] = {}
    unused = {}
    for record in records:
        for case in record.repaired:
            unused[case] = _absent_test_error(record, case, "remove it from `repaired`")
        for test in record.tests:
            if not is_defined(test, root):
                command = f"parallel-conformance draft --divergences {record.file}"
                raise _absent_test_error(
                    record, test, f"`{command}` prints the register without it"
                )
            records_of.setdefault(test, []).append(record)
            unused[test] = _absent_test_error(record, test, "remove it from the record")
    collected: set[str] = set()
    for item in items:
        name = name_of(item, root)
        names = name, without_parameters(name)
        collected.update(names)
        found = [record for each in names for record in records_of.get(each, ())]
        item.stash[RECORDS] = [
            record for record in dict.fromkeys(found) if record.applies_to(name)
        ]
    for test in sorted(unused.keys() - collected):
        if whole or (all_cases and without_parameters(test) in collected):
            raise unused[test]


def keeps(records: Iterable[Divergence], lacks: Collection[str], test: TestVerdict) -> bool:
    """Return whether a verdict of a former run is also that of a run with this register.

    A failure that a record names, but does not expect, shows the record, so it is not kept.
    """
    _, prefix, inside = test.test.partition(f"{SUITE.name}/")
    name = inside if prefix else test.test
    names = {name, without_parameters(name)}
    naming = [
        each for each in records if not names.isdisjoint(each.tests) and each.applies_to(name)
    ]
    failure = test.failure
    if test.declared:
        return test.declared in lacks
    if test.verdict == "pass" or (failure is not None and failure.is_stale):
        return bool(naming) == (test.verdict != "pass")
    if test.verdict == "not-run" or failure is None:
        return True
    if test.verdict == "known":
        return any(failure.is_expected(record.expects) for record in naming)
    is_declared = failure.kind == "not-offered" and failure.facts[0].name in lacks
    return not naming and not is_declared


def name_of(item: pytest.Item, root: Path) -> str:
    """Return the node id of a test relative to the folder of the suite, as records have it."""
    # In an installed suite, the path in ``item.nodeid`` is relative to another folder.
    _, _, inside = item.nodeid.partition("::")
    return f"{item.path.relative_to(root).as_posix()}::{inside}"


def is_defined(test: str, root: Path) -> bool:
    """Return whether the file of a test has its function. The file may not be collected."""
    file, _, name = without_parameters(test).partition("::")
    path = root / file
    return path.is_file() and f"def {name}(" in path.read_text(encoding="utf-8")


def _absent_test_error(record: Divergence, test: str, remedy: str) -> pytest.UsageError:
    return pytest.UsageError(f"{record.name} names a test that does not exist: {test}; {remedy}")


def without_parameters(node_id: str) -> str:
    """Return the node id of a test for all its parameters."""
    return node_id.partition("[")[0]


def load_lacks(path: Path) -> list[str]:
    """Return the names that ``lacks`` declares: parts of the target, or names in parts.

    Raises:
        pytest.UsageError: The file cannot be read, or an entry has another form.
    """
    names: list[str] = read_tables(path).get("lacks", [])
    for name in names:
        if name.partition(".")[0] not in PARTS:
            problem = f"a name begins with one of {', '.join(PARTS)}"
            raise input_files.refuse(path, f'lacks "{name}": {problem}')
    return names


def require_missing(names: Collection[str], target: Target, path: Path) -> None:
    """Check that a target lacks the names that its register declares.

    Raises:
        pytest.UsageError: The target has one of the names, or torch.nn.parallel lacks it, too.
    """
    if present := [name for name in names if target.offers(name)]:
        left = [name for name in names if name not in present]
        remedy = f"write lacks = {json.dumps(left)}" if left else "remove them"
        problem = f"lacks {', '.join(present)}: the target has these names; {remedy}"
        raise input_files.refuse(path, problem)
    if unknown := [name for name in names if not Target(REFERENCE).offers(name)]:
        problem = f"lacks {', '.join(unknown)}: {REFERENCE} has no such names"
        raise input_files.refuse(path, problem)


def path_of(target: str, divergences_option: str | None, folder: Path = FOLDER) -> Path | None:
    """Return the file of ``--divergences``, else the suite's register of the target, if any.

    Raises:
        pytest.UsageError: the file of ``--divergences`` does not exist.
    """
    path = Path(divergences_option) if divergences_option else folder / f"{target}.toml"
    if os.path.exists(path):  # Path.exists raises an error for a long name
        return path
    if divergences_option:
        raise pytest.UsageError(f"--divergences {divergences_option}: no such file")
    return None


def _parse_versions(text: str) -> Requirement:
    try:
        if (requirement := Requirement(text)).specifier:
            return requirement
    except InvalidRequirement:
        pass
    raise ValueError(f"versions {text!r} is not like 'torch>=2.11'")


@functools.cache
def _of_reference(torch: str | None) -> tuple[Divergence, ...]:
    """Return the records of torch.nn.parallel of a version of PyTorch; None: the installed one."""
    return tuple(
        record
        for record in load(FOLDER / f"{REFERENCE}.toml")
        if not record.versions or is_satisfied(record.versions, torch)
    )


def violated_by_reference(torch: str | None = None) -> frozenset[str]:
    """Return the clauses that torch.nn.parallel violates, from its register.

    ``torch`` is the version of PyTorch; None for the installed one.
    """
    return frozenset(name for record in _of_reference(torch) for name in record.clauses)


def violated_by_a_release() -> frozenset[str]:
    """Return the clauses that any release of torch.nn.parallel violates, from its register."""
    records = load(FOLDER / f"{REFERENCE}.toml")
    return frozenset(name for record in records for name in record.clauses)


def compare_with_reference(
    names: Collection[str], failure: Failure | None, torch: str | None = None
) -> str:
    """Return a sentence if torch.nn.parallel violates the clauses ``names``; else an empty text.

    Args:
        names: The ids of the clauses that a failure violates.
        failure: The failure; None for a run of an earlier suite.
        torch: The version of PyTorch; None for the installed one.
    """
    is_stale = failure is not None and failure.is_stale
    if is_stale or not violated_by_reference(torch).issuperset(names):
        return ""
    if failure is None:
        return f"{VIOLATED}; this run does not say whether in the same way"
    is_other = fails_otherwise(names, failure, torch)
    return f"{VIOLATED}{f' {OTHERWISE}' if is_other else ', too'}"


def fails_otherwise(names: Collection[str], failure: Failure, torch: str | None = None) -> bool:
    """Return whether torch.nn.parallel violates clauses, but by other facts than ``failure``."""
    records = [each for each in _of_reference(torch) if not {*names}.isdisjoint(each.clauses)]
    is_violated = violated_by_reference(torch).issuperset(names)
    return is_violated and not any(failure.is_expected(record.expects) for record in records)


def is_satisfied(text: str, installed: str | None = None) -> bool:
    """Return whether the installed version, or ``installed``, satisfies the requirement.

    A pre-release counts as its release, and a local version as its public version:
    ``2.16.0.dev20261120+cpu`` satisfies the same requirements as ``2.16.0``.

    Raises:
        input_files.RefusedError: The distribution is not installed, or `installed` is no version.
    """
    requirement = _parse_versions(text)
    try:
        version = Version(installed or metadata.version(requirement.name))
    except metadata.PackageNotFoundError:
        problem = f"{requirement.name} is not installed"
        raise input_files.refuse(f"versions {text!r}", problem) from None
    except InvalidVersion as error:  # in a file of verdicts
        raise input_files.refuse(requirement.name, error) from None
    return requirement.specifier.contains(version.base_version)
