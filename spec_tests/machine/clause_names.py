"""Names of clauses in options and registers: chapters, and beginnings of ids."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches

from spec_tests.machine.clauses import Clause


def matching(names: Iterable[str], known_clauses: Mapping[str, Clause]) -> list[str]:
    """Return the ids of the clauses that one of ``names`` names, in the order of the clauses.

    ``comm.sc`` is the beginning of ``comm.scatter.slices``. The name of a chapter, or one that
    consists of whole words, selects only these: ``divergences.RE-1`` does not select
    ``divergences.RE-10``.
    """
    found: set[str] = set()
    for name in filter(None, names):
        words = {each.id for each in known_clauses.values() if each.is_named_by(name)}
        found |= words or {each for each in known_clauses if each.startswith(name)}
    return [each for each in known_clauses if each in found]


def describe_unknown(names: Iterable[str], known_clauses: Mapping[str, Clause]) -> str | None:
    """Return a sentence with the first name that names no clause, and with similar names.

    Return None if each name is a chapter or the beginning of an id.
    """
    for name in names:
        if not matching([name], known_clauses):
            return f"{name}: no clause has this name{hint(name, known_clauses)}"
    return None


def hint(name: str, ids: Iterable[str]) -> str:
    """Return a question with a similar id or beginning of one; an empty text if there is none."""
    word = name.rpartition(".")[2]
    similar = get_close_matches(name, beginnings(ids), n=1, cutoff=0.9)
    similar += get_close_matches(name, [each for each in ids if word in each], n=1, cutoff=0)
    similar += get_close_matches(name, beginnings(ids), n=1)
    return f"; did you mean {similar[0]}?" if similar else ""


def beginnings(ids: Iterable[str]) -> list[str]:
    """Return all ids and their beginnings: ``comm``, ``comm.scatter``, ..."""
    words = [clause_id.split(".") for clause_id in ids]
    return [*dict.fromkeys(".".join(w[: end + 1]) for w in words for end in range(len(w)))]
