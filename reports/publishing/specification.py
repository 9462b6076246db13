"""The generated pages: SPECIFICATION.md, DIVERGENCES.md and those of `reports.others.history`.

``python -m reports build`` writes them.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import groupby
from pathlib import Path

from reports.others import history
from spec_tests.machine import clauses, register

ROOT = Path(__file__).resolve().parents[2]
REGISTER = register.FOLDER / "torch.nn.parallel.toml"
_ABOUT_DIVERGENCES = """\
# Where impl differs from torch.nn.parallel

`impl` does what torch.nn.parallel does, error texts included, except for the divergences on this
page. It also refuses some [wrong arguments](docs/faults.md#wrong-arguments), and has keywords and
classes that torch.nn.parallel lacks, such as `chunk_sizes`, `in_turn` and `hold`; the tests of
impl check these. The meaning of an id does not change, and the id of a divergence that is gone,
such as DP-4, is not used again. The letters of an id name the functions that differ: **CO** comm,
**FN** functions, **SG** scatter and gather of nested values, **RE** replicate, **PA**
parallel_apply, **DP** DataParallel and data_parallel.

Each section lists the behaviour of torch.nn.parallel, the behaviour of impl and the reason for the
divergence: torch.nn.parallel is wrong, torch.nn.parallel refuses a call that impl supports, or the
behaviour of torch.nn.parallel is undefined. Tests of the suite check both behaviours. impl behaves
as a clause of [the specification](spec_tests/SPECIFICATION.md) says; the id of the clause follows.
Threads are public issues and pull requests of pytorch/pytorch, unless a link names another
repository.

Generated from `spec_tests/registers/torch.nn.parallel.toml` by
`python -m reports build`.
"""
_ABOUT_CLAUSES = """\
# The specification of torch.nn.parallel

Suite {version}, {count} clauses. A *clause* is one statement about torch.nn.parallel, or about
devices, that tests check. The **basis** of a clause is the evidence for it. For an observed
clause, *source* links a public thread, if there is one.

{bases}

## Terms

* [The suite's page](README.md#terms) explains *clause*, *target*, *reference* and *divergence*.
  [Divergences of torch.nn.parallel](../DIVERGENCES.md) lists those of the reference.
* `N` is the extent of a tensor along the dimension to split, `k` the number of devices.
* A **chunk** is the part of a tensor that one device gets. A **replica** is a copy of a module on
  one device.
* A **bucket** is a group of tensors that are copied or added together, so that many small tensors
  take one transfer. Copies and sums do not depend on the buckets. `reduce_add_coalesced` splits
  the dense tensors of each list into buckets: tensors of one dtype, in their order, of at most
  `buffer_size` bytes together; a larger tensor has a bucket of its own. The tensors of a bucket
  are flattened and joined, so a size in an error is the number of elements of a bucket. A sparse
  tensor is made dense if another list has a dense tensor at its position.
* The chapter `devices` is about the devices, not the target: it states what programs over several
  devices rely on, and *source* lists back ends of PyTorch that violate a clause. A **feature** is
  a name for optional clauses.
* A call is **refused** if it raises an exception and does not change its arguments. Programs
  match the class and the text of an error. So tests expect both to be those of
  torch.nn.parallel, also if the clause names neither. They check only the class, or the class and
  a part of the text, if the rest depends on the devices, on Python or on the release of PyTorch,
  as for sparse tensors. They also accept every text with the part that the clause names, if the
  clause says that the text *contains* it, or if the reference violates the clause.
* *torch.nn.parallel violates it* follows a statement if that of PyTorch 2.11 or of a later release
  violates the clause. The ids of most such clauses begin with `divergences`.
* A **note** after a statement is a rule that its tests check, too, such as strides.
* Fixed texts of errors follow a statement after **raises**. `…` stands for any text, a name in
  braces for a value, such as `{{dim}}`, and `{{KIND}}` for the device type in capital letters.

## How to read a clause

Each clause has a *basis*, its evidence: *documented* by PyTorch; a *law* that every implementation
satisfies; *observed* in a run of torch.nn.parallel (*real*), of the primitives in PyTorch's CUDA
build (*binary*), or of the suite's stand-ins for them (*stand-in*); or *relied on* by programs
over several devices.

Cite a clause by its id: `comm.scatter.slices`. The id does not change if the clause gets another
chapter.
`parallel-conformance clauses comm.scatter` prints the clauses whose ids begin with `comm.scatter`,
and `parallel-conformance clauses comm` those of the chapter `comm`;
`parallel-conformance run TARGET --clause comm.scatter.slices` runs the tests of one clause.

A test compares the result of the target with the result of the reference, with the result of the
*oracle* (a simple implementation in `oracle/`), with the result that a law requires, or with a
value or error text in the test.

Generated from the files `clauses.toml` of the chapters by
`python -m reports build`."""
_WITHOUT_CLAUSE = """
## Divergences without a clause

The tests of impl check these divergences. The suite has no clause for them, so it accepts both
behaviours.

* Integers of NumPy as devices. impl takes them for ordinals, and -1 for the CPU as a target.
  torch.nn.parallel takes them for the current device, or refuses them.
* An iterator as the devices of `scatter_kwargs`. In torch.nn.parallel the positional arguments
  exhaust the iterator, and tensors among the keyword arguments raise an error.
* `DataParallel` with `device_ids` where there is no accelerator. impl issues a UserWarning, once
  in a process. torch.nn.parallel issues none. In both the wrapper only calls the module.
* The `repr` of a `DataParallel`. That of impl shows `device_ids`, and the other arguments that are
  not the defaults. That of torch.nn.parallel shows only the module.
* An error of batch norm in a replica. In impl it has a note with the shape of the replica's chunk.
* A single device as `device_ids`, such as 2 or `"cpu"`. In impl the TypeError says that a sequence
  is expected. torch.nn.parallel raises a TypeError or, for a string, a RuntimeError.
"""
#: For each kind of record in the register: the reason that DIVERGENCES.md states.
_REASONS = {
    "fix": "torch.nn.parallel is wrong",
    "extends": "torch.nn.parallel refuses a call that impl supports",
    "defined": "the behaviour of torch.nn.parallel is undefined",
}


def divergences() -> str:
    """Return the text of DIVERGENCES.md: a table of contents, and a section for each id."""
    titles = register.read_tables(REGISTER)["titles"]
    found = _group_by_id(register.load(REGISTER))
    contents = [f"| [{name}](#{name.lower()}) | {titles[name]} |" for name in found]
    sections = [_section(name, titles[name], each) for name, each in found.items()]
    return "\n".join(
        [
            _ABOUT_DIVERGENCES,
            "| id | subject |",
            "|---|---|",
            *contents,
            *sections,
            _WITHOUT_CLAUSE,
        ]
    )


def _group_by_id(records: Iterable[register.Divergence]) -> dict[str, list[register.Divergence]]:
    found: dict[str, list[register.Divergence]] = {}
    for each in sorted(records, key=lambda record: _sort_key(record.id)):
        found.setdefault(each.id, []).append(each)
    return found


def _sort_key(divergence_id: str) -> tuple[str, int]:
    part, _, number = divergence_id.partition("-")
    return part, int(number)


def _section(divergence_id: str, title: str, records: list[register.Divergence]) -> str:
    reasons = "; ".join(dict.fromkeys(_REASONS[each.kind] for each in records))
    says = {name: clauses.load()[name].says for each in records for name in each.clauses}
    versions = ", ".join(dict.fromkeys(f"`{each.versions}`" for each in records))
    links = dict.fromkeys(_thread_link(url) for each in records for url in each.threads)
    threads = ", ".join(links) or "none"
    return "\n".join(
        [
            f"\n## {divergence_id}\n",
            f"**{title}.** Reason: {reasons}. Versions: {versions}. Threads: {threads}.\n",
            "* In torch.nn.parallel:",
            *(f"  * {text}" for text in dict.fromkeys(each.observed for each in records)),
            "* In impl:",
            *(f"  * {text} (`{clause}`)" for clause, text in says.items()),
        ]
    )


def _thread_link(url: str) -> str:
    owner, repository, _, number = url.rstrip("/").split("/")[-4:]
    return f"[{number if owner == 'pytorch' else f'{owner}/{repository} {number}'}]({url})"


def specification() -> str:
    """Return the text of SPECIFICATION.md: a table for each chapter."""
    known = clauses.load()
    bases = _table_of_bases(known.values())
    violated = register.violated_by_a_release()
    lines = [_ABOUT_CLAUSES.format(version=clauses.VERSION, count=len(known), bases=bases)]
    for chapter, members in groupby(known.values(), key=lambda each: each.chapter):
        lines += ["", f"## {chapter}", "", "| clause | statement | basis | source |"]
        lines += ["|---|---|---|---|", *(_clause_row(each, violated) for each in members)]
    return "\n".join([*lines, ""])


def _table_of_bases(known_clauses: Iterable[clauses.Clause]) -> str:
    counts = Counter(each.basis for each in known_clauses)
    rows = [f"| {basis} | {counts[basis]} | {text} |" for basis, text in clauses.BASES.items()]
    return "\n".join(["| basis | clauses | evidence |", "|---|---|---|", *rows])


def _clause_row(clause: clauses.Clause, violated: Collection[str]) -> str:
    statement = clause.statement.replace("|", "\\|")
    sources = ", ".join(filter(None, [clause.source, *clause.seen]))
    remark = f"<br>*{register.VIOLATED}*" if clause.id in violated else ""
    errors = "".join(f"<br>raises `{error}`" for error in clause.raises)
    return f"| `{clause.id}` | {statement}{remark}{errors} | {clause.basis} | {sources} |"


#: For each generated page: the function that returns its text.
PAGES: Mapping[Path, Callable[[], str]] = {
    ROOT / "DIVERGENCES.md": divergences,
    ROOT / "spec_tests" / "SPECIFICATION.md": specification,
}


def stale() -> dict[Path, str]:
    """Return, for each page that is out of date, the text that it should have."""
    texts = {**{path: page() for path, page in PAGES.items()}, **history.render()}
    return {
        path: text
        for path, text in texts.items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    }


def write() -> list[Path]:
    """Write the pages that are out of date; return their paths."""
    found = stale()
    for path, text in found.items():
        path.write_text(text, encoding="utf-8")
    return list(found)
