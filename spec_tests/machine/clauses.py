"""Reads the clauses of the specification, and formats them as text."""

import builtins
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

import pytest

from spec_tests.failure import SUITE, Fact
from spec_tests.machine import input_files
from spec_tests.machine.options import suite_of

#: The version of the suite. Its second number changes in a release with a new or reworded clause,
#: its first number in a release that lacks a clause of the one before.
VERSION = "1.0"
#: The chapters in the order of the specification.
CHAPTERS = (
    "comm",
    "functions",
    "scatter_gather",
    "replicate",
    "parallel_apply",
    "data_parallel",
    "devices",
)
#: For each basis: the evidence that it names.
BASES: Mapping[str, str] = {
    "documented": "the documentation of PyTorch states it; *source* links the page",
    "law": "every implementation must satisfy it; example: the outputs of a wrapped module equal "
    "those of the module alone",
    "observed (real)": "the installed PyTorch behaves like this, on simulated devices or the CPU; "
    "a stand-in, if one runs, only copies tensors",
    "observed (binary)": "the primitives in PyTorch's CUDA build behave like this: "
    "`tox -e cuda-build` compares all facts but values with those of the stand-ins, without a GPU",
    "observed (stand-in)": "the stand-ins of the suite behave like this, and nothing else has "
    "shown it: values, streams and memory of the primitives",
    "relied on": "programs over several devices rely on it; *source* names back ends that violate "
    "it, or links public threads about them",
}
#: The chapters about a single function, or about a class and its function.
_OF_ONE_FUNCTION = ("replicate", "parallel_apply", "data_parallel")
#: The second words of the ids about one function of another chapter.
_FUNCTIONS = (
    *("scatter", "broadcast", "broadcast-coalesced", "reduce-add", "reduce-add-coalesced"),
    *("gather", "scatter_kwargs"),
)
#: Matches the id of a clause: two or more words, separated by dots.
_ID = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)+")
#: Matches the beginning of an error: its class.
_ERROR = re.compile(r"\w+: \S")
_Test = TypeVar("_Test", bound=Callable[..., Any])


@dataclass(frozen=True)
class Clause:
    """A statement of the specification.

    Args:
        id: The name: ``comm.scatter.slices``.
        says: The statement: one sentence in the present tense.
        basis: The evidence: a key of `BASES`.
        source: The link to a page or public thread, if any.
        feature: The optional feature of devices that the clause belongs to, if any.
        users: For a clause about devices: the software that needs it, and why.
        seen: Links to public threads about back ends that violate the clause, or names of such
            back ends.
        note: A rule that tests of the clause check, and that the statement does not name.
        facts: The facts that the clause is about, such as ``strides``, ``gradient`` (all facts
            about gradients) or ``input: values``; see `judge.violated_by`.
        raises: The errors that tests of the clause expect, such as ``IndexError: list index out
            of range``; see `error_of`.
        folder: The folder with the clause, if it is a chapter of the suite.
    """

    id: str
    says: str
    basis: str
    source: str = ""
    feature: str = ""
    users: str = ""
    seen: tuple[str, ...] = ()
    note: str = ""
    facts: tuple[str, ...] = ()
    raises: tuple[str, ...] = ()
    folder: str = ""

    @property
    def chapter(self) -> str:
        """The folder with the clause; without one, the first word of the id."""
        return self.folder or self.id.partition(".")[0]

    @property
    def function(self) -> str:
        """The first words of the id, up to the function; the first one if the chapter has one."""
        words = self.id.split(".")
        return ".".join(words[: 1 if words[0] in _OF_ONE_FUNCTION else 2])

    @property
    def is_of_several(self) -> bool:
        """Whether the clause is about several functions of its chapter together."""
        first, second, *_ = self.id.split(".")
        return first not in (*_OF_ONE_FUNCTION, "divergences") and second not in _FUNCTIONS

    @property
    def is_about_target(self) -> bool:
        """Whether another target may have another verdict."""
        return not self.is_named_by("devices")

    @property
    def since(self) -> str:
        """The first release of torch.nn.parallel that passes the clause; empty if unknown."""
        return _first_releases().get(self.id, "")

    @property
    def statement(self) -> str:
        """The statement with note, feature and users, as the pages show it."""
        notes = [f"feature `{self.feature}`"] if self.feature else []
        notes += [f"used by {self.users}"] if self.users else []
        return f"{self.noted} ({'; '.join(notes)})" if notes else self.noted

    @property
    def noted(self) -> str:
        """The statement with its note, as failures show it."""
        return f"{self.says} (note: {self.note})" if self.note else self.says

    def is_named_by(self, name: str) -> bool:
        """Return whether ``name`` is the chapter, the id, or whole words of its beginning."""
        return name == self.chapter or f"{self.id}.".startswith(f"{name}.")

    def is_about(self, fact: Fact) -> bool:
        """Return whether the clause is about a fact."""
        name = fact.name.partition(" (")[0]  # such as "values (zero)"
        return not {fact.place, name, f"{fact.place}: {name}"}.isdisjoint(self.facts)

    def __post_init__(self) -> None:
        if self.basis not in BASES:
            raise ValueError(f"basis {self.basis!r} is none of {[*BASES]}")
        if not is_id(self.id):
            raise ValueError("the id has another form than 'chapter.name'")
        if unknown := [entry for entry in self.facts if not Fact.is_declared(entry)]:
            raise ValueError(f"{unknown[0]!r} in `facts` is unknown: see spec_tests/failure.py")
        if wrong := [error for error in self.raises if not _ERROR.match(error)]:
            raise ValueError(f"{wrong[0]!r} in `raises` has another form than 'Class: text'")


def clause(clause_id: str) -> Callable[[_Test], _Test]:
    """Return a decorator that marks a test with the id of the clause that it checks."""
    return pytest.mark.clause(clause_id)


def cases(names: str, cases_of: Mapping[str, Sequence[Any]]) -> pytest.MarkDecorator:
    """Return a decorator that runs a test for each case, with the clause of the case.

    Args:
        names: The parameters of the test, such as ``call, error, text``.
        cases_of: For each id of a clause, its cases: values, or tuples for several parameters.
    """
    return pytest.mark.parametrize(
        names,
        [
            pytest.param(
                *(case if "," in names else [case]),
                marks=pytest.mark.clause(clause_id),
                id=f"{clause_id}-{number}",
            )
            for clause_id, values in cases_of.items()
            for number, case in enumerate(values, 1)
        ],
    )


def error_of(clause_id: str, number: int = 0, **values: object) -> str:
    """Return an error that a clause names in ``raises``: its class and its text.

    Args:
        clause_id: The clause.
        number: The position of the error in ``raises``.
        values: For a name in braces in the error: the value that replaces it.
    """
    error = _clauses_of_suite()[clause_id].raises[number]
    for name, value in values.items():
        error = error.replace(f"{{{name}}}", str(value))
    return error


def exception_of(clause_id: str, number: int = 0, **values: object) -> Exception:
    """Return `error_of` as an exception of a class of Python."""
    kind, _, text = error_of(clause_id, number, **values).partition(": ")
    exception: Exception = getattr(builtins, kind)(text)
    return exception


def is_id(text: str) -> bool:
    """Return whether ``text`` has the form of the id of a clause."""
    return _ID.fullmatch(text) is not None


def clauses_of_test(item: pytest.Item) -> list[str]:
    """Return the ids of the clauses that a test checks, in the order of its decorators."""
    markers = reversed([*item.iter_markers("clause")])
    return [name for marker in markers for name in marker.args]


def load(source: Path = SUITE) -> dict[str, Clause]:
    """Return the clauses by id, in the order of the specification.

    Args:
        source: The folder of the chapters, a folder without chapters, or a TOML file with clauses.

    Raises:
        input_files.RefusedError: A file cannot be read, or a clause is not valid.
    """
    if source.is_file():
        files = {"": source}
    else:
        folders = [name for name in CHAPTERS if (source / name).is_dir()] or [""]
        files = {name: source / name / "clauses.toml" for name in folders}
    clauses_by_id: dict[str, Clause] = {}
    for folder, file in files.items():
        for clause in _parse(input_files.read_text(file), str(file), folder):
            if clause.id in clauses_by_id:
                raise input_files.refuse(
                    file, f"clause {clause.id} stands in {clauses_by_id[clause.id].chapter}, too"
                )
            clauses_by_id[clause.id] = clause
    return clauses_by_id


_clauses_of_suite = cache(load)


def of_run(config: pytest.Config) -> dict[str, Clause]:
    """Return the clauses of the suite that a run uses, by id."""
    return load(suite_of(config))


def suite_version(clauses: Mapping[str, Clause]) -> str:
    """Return the version with a hash of the clauses' ids and statements: ``1.0+1f3a9c2``."""
    lines = sorted(f"{clause.id}: {clause.says}\n" for clause in clauses.values())
    return f"{VERSION}+{hashlib.sha256(''.join(lines).encode()).hexdigest()[:7]}"


@cache
def _parse(text: str, source: str, folder: str) -> tuple[Clause, ...]:
    """Return the clauses in a TOML text. Cached: a run parses the same text repeatedly."""
    tables = input_files.parse_toml(text, source)
    try:
        return tuple(_flatten_tables(tables, folder, prefix=""))
    except (TypeError, ValueError) as error:
        raise input_files.refuse(source, error) from None


def _flatten_tables(tables: dict[str, Any], folder: str, prefix: str) -> Iterator[Clause]:
    """Yield the clauses in nested tables. Their ids begin with ``prefix``."""
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise ValueError(f"{prefix}{name}: expected a table of clauses")
        if "says" in table:
            source = f"clause {prefix}{name}"
            if unknown := table.keys() - Clause.__dataclass_fields__.keys():
                raise ValueError(f"{source}: no clause has the key {min(unknown)!r}")
            fields = {**table, "id": prefix + name, "folder": folder}
            yield input_files.convert(fields, Clause, source)
        else:
            yield from _flatten_tables(table, folder, prefix=f"{prefix}{name}.")


@cache
def _first_releases() -> dict[str, str]:
    # `python -m reports build` writes the file.
    file = SUITE / "since.toml"
    tables = input_files.parse_toml(input_files.read_text(file), str(file))
    return {name: release for release, names in tables.items() for name in names}


def as_text(clauses: Sequence[Clause], remarks: Mapping[str, str]) -> str:
    """Return ids and statements of ``clauses`` by chapter, as plain text.

    ``remarks`` has a line for the id of a clause, if any.
    """
    lines = []
    for chapter, members in groupby(clauses, key=lambda clause: clause.chapter):
        lines.append(f"\n{chapter}\n{'=' * len(chapter)}")
        for clause in members:
            since = f"; since {clause.since}" if clause.since else ""
            lines.append(f"{clause.id}\n    {clause.statement}  [{clause.basis}{since}]")
            lines += [f"    {remarks[clause.id]}"] if clause.id in remarks else []
            lines += [f"    raises {error}" for error in clause.raises]
    return "\n".join([*lines, f"\n{format_count(len(clauses))}"])


def format_count(number: int, noun: str = "clause") -> str:
    """Return a number with a noun, such as ``1 clause`` or ``2 clauses``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def matching(names: Iterable[str], specification: Mapping[str, Clause]) -> list[str]:
    """Return the ids of the clauses that one of ``names`` names, in the order of the clauses.

    ``comm.sc`` is the beginning of ``comm.scatter.slices``. The name of a chapter, or one that
    consists of whole words, selects only these: ``divergences.RE-1`` does not select
    ``divergences.RE-10``.
    """
    named: set[str] = set()
    for name in filter(None, names):
        words = {each.id for each in specification.values() if each.is_named_by(name)}
        named |= words or {each for each in specification if each.startswith(name)}
    return [each for each in specification if each in named]


def describe_unknown(name: str, specification: Mapping[str, Clause]) -> str:
    """Return a sentence about a name that names no clause, with a similar name."""
    return f"{name}: no clause has this name{hint(name, specification)}"


def hint(name: str, ids: Iterable[str]) -> str:
    """Return a question with a similar id or beginning of one; an empty text if there is none."""
    # All ids and their beginnings: comm, comm.scatter, ...
    words = [clause_id.split(".") for clause_id in ids]
    names = [*dict.fromkeys(".".join(w[: end + 1]) for w in words for end in range(len(w)))]
    similar = get_close_matches(name, names, n=1)
    return f"; did you mean {similar[0]}?" if similar else ""
