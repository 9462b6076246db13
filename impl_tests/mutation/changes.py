"""What is changed: every operator at every place of impl that it fits."""

import ast
import contextlib
import difflib
import itertools
import pickle
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from cosmic_ray import plugins
from cosmic_ray.ast import get_ast
from cosmic_ray.mutating import MutationVisitor

from impl_tests.mutants import IMPL
from impl_tests.mutation import drops
from spec_tests.meta_tests.python_source import imported_modules

#: Of cosmic-ray's operators those that change what a line does without being a variant of another.
OPERATORS = (
    "AddNot",
    "ExceptionReplacer",
    "NumberReplacer",
    "RemoveDecorator",
    "ReplaceAndWithOr",
    "ReplaceBinaryOperator_Add_Sub",
    "ReplaceBinaryOperator_FloorDiv_Mul",
    "ReplaceBinaryOperator_Mul_Div",
    "ReplaceBinaryOperator_Sub_Add",
    "ReplaceBreakWithContinue",
    "ReplaceComparisonOperator_GtE_Gt",
    "ReplaceComparisonOperator_Gt_GtE",
    "ReplaceComparisonOperator_LtE_Lt",
    "ReplaceComparisonOperator_Lt_LtE",
    "ReplaceContinueWithBreak",
    "ReplaceFalseWithTrue",
    "ReplaceOrWithAnd",
    "ReplaceTrueWithFalse",
    "ReplaceUnaryOperator_Delete_Not",
    "ReplaceUnaryOperator_Delete_USub",
    "ZeroIterationForLoop",
)
#: Every other number of an operator that makes two of each: one more and one less.
_STRIDE = {"NumberReplacer": 2}
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@dataclass(frozen=True)
class Change:
    """impl with one small change.

    Args:
        file: The file of impl.
        place: The function or class that is changed, dotted; empty at the level of the module.
        line: The number of the line.
        before: The line as it was; all that differ, where they are several.
        after: The line as it is.
        text: The file as it is.
        nth: Which of the changes at this place that read alike.
    """

    file: str
    place: str
    line: int
    before: str
    after: str
    text: str
    nth: int = 1

    @property
    def name(self) -> str:
        """What was changed where; the same after an edit elsewhere in the file."""
        return name_of(self.file, self.place, self.before, self.after, self.nth)

    def write(self, folder: Path) -> None:
        """Write the changed impl into ``folder``."""
        home = folder / IMPL.name
        shutil.copytree(IMPL, home, ignore=shutil.ignore_patterns("__pycache__"))
        (home / self.file).write_text(self.text, encoding="utf-8")


def name_of(file: str, place: str, before: str, after: str, nth: int = 1) -> str:
    """Name a change by what is written of it."""
    return f"{file} {place}: {before} -> {after}" + (f" [{nth}]" if nth > 1 else "")


def changes(files: tuple[str, ...] = ()) -> dict[str, Change]:
    """Every change to these files, by name; docstrings and type hints are left alone.

    Args:
        files: By default what ``import impl`` imports. What ``impl.distributed`` alone uses runs
            in processes of its own, one a rank, where it is not seen which lines a test executes.

    Raises:
        FileNotFoundError: impl has no such file.
    """
    paths = [IMPL / name for name in files] or sorted(imported(IMPL / "__init__.py"))
    return {change.name: change for path in paths for change in _changes_of(path)}


def imported(path: Path, found: frozenset[Path] = frozenset()) -> frozenset[Path]:
    """A file of impl and those that it imports, with what they import."""
    if path in found or not path.is_file():
        return found
    found |= {path}
    for name in imported_modules(path):
        found = imported(path.with_name(f"{name.removeprefix('.')}.py"), found)
    return found


def _changes_of(path: Path) -> Iterator[Change]:
    code = path.read_text(encoding="utf-8")
    places = _places(ast.parse(code))
    alike: Counter[tuple[str, str, str]] = Counter()
    lines = code.splitlines(keepends=True)
    for above, below in itertools.pairwise(_cuts(code)):
        part = "".join(lines[above:below])
        for text in _texts(part):
            first, before, after = _first_difference(part.splitlines(), text.splitlines())
            if not _is_other_change(before, after):
                line = above + first
                kind = places.get(line, ""), before, after
                alike[kind] += 1
                whole = "".join([*lines[:above], text, *lines[below:]])
                yield Change(path.name, kind[0], line, before, after, whole, alike[kind])


def _cuts(code: str) -> list[int]:
    """Cut a file behind each statement of its own level: a change copies and parses its part."""
    statements = ast.parse(code).body
    return [0, *sorted({each.end_lineno or each.lineno for each in statements})]


def _texts(part: str) -> Iterable[str]:
    """The changed texts of a part, each once, in order."""
    # A change needs a tree of its own; to parse one takes eight times as long.
    tree = pickle.dumps(get_ast(part))
    made = itertools.chain.from_iterable(_replaced(tree, operator) for operator in OPERATORS)
    # What is dropped may be what another operator replaces.
    return dict.fromkeys([*made, *drops.texts(part)])


def _replaced(tree: bytes, operator: str) -> Iterator[str]:
    kind = plugins.get_operator(f"core/{operator}")
    for occurrence in itertools.count(0, _STRIDE.get(operator, 1)):
        visitor = MutationVisitor(occurrence, kind())
        changed = visitor.walk(pickle.loads(tree))
        if not visitor.mutation_applied:
            return
        text = changed.get_code()
        if _is_python(text):
            yield text


def _is_python(text: str) -> bool:
    with contextlib.suppress(SyntaxError):
        ast.parse(text)
        return True
    return False


def _is_other_change(before: str, after: str) -> bool:
    """Tell of a change that another operator makes, or of one that is none of its operator's."""
    # Two negations are none; a star that marks keyword-only parameters is no product.
    return "not not" in after or after == before.replace("*,", "/,")


def _first_difference(before: list[str], after: list[str]) -> tuple[int, str, str]:
    """The number of the first line that differs, counted from one, and the two texts.

    What takes several lines is put on one, so that its text tells it from what begins alike.
    """
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    _, start, end, *there = next(code for code in matcher.get_opcodes() if code[0] != "equal")
    # A decorator goes with the empty lines above it, and nothing comes in its place.
    line = next(number for number in range(start, end) if before[number].strip())
    return line + 1, _on_one_line(before[start:end]), _on_one_line(after[slice(*there)])


def _on_one_line(lines: list[str]) -> str:
    return " ".join(line.strip() for line in lines if line.strip())


def _places(tree: ast.AST, prefix: str = "") -> dict[int, str]:
    """The innermost function or class of each line that is in one."""
    found: dict[int, str] = {}
    for node in ast.iter_child_nodes(tree):
        name = f"{prefix}{node.name}" if isinstance(node, _SCOPES) else prefix[:-1]
        if isinstance(node, _SCOPES):
            last = node.end_lineno or node.lineno
            found |= dict.fromkeys(range(first_line(node), last + 1), name)
        found |= _places(node, f"{name}." if name else "")
    return found


def first_line(node: ast.stmt) -> int:
    """The line where a statement begins, with its decorators."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(each.lineno for each in decorators)])
