"""All changes to impl: each mutation operator, applied wherever it can be applied."""

import ast
import contextlib
import difflib
import itertools
import pickle
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from cosmic_ray import plugins
from cosmic_ray.ast import get_ast
from cosmic_ray.mutating import MutationVisitor

from impl_tests.changed_copy import IMPL, write_copy
from impl_tests.mutation import operators

#: The operators of cosmic-ray that are used: one of each group of similar operators.
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
#: Operator -> n: only every nth change by this operator is used. NumberReplacer changes a number x
#: to x + 1 and to x - 1; only x + 1 is used.
_STRIDE = {"NumberReplacer": 2}
#: Classes of syntax-tree nodes that define a function or a class.
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@dataclass(frozen=True)
class Change:
    """impl with one small change.

    Args:
        file: The changed file, relative to the folder of impl.
        place: The qualified name of the changed function or class; empty at module level.
        line: The number of the first changed line.
        before: The changed lines before the change, joined by spaces.
        after: The changed lines after the change, joined by spaces.
        text: The whole file after the change.
        nth: The position of this change, from 1, among the changes with equal ``place``,
            ``before`` and ``after``.
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
        """A unique name, without line numbers: edits of other functions do not change it."""
        suffix = f" [{self.nth}]" if self.nth > 1 else ""
        return f"{self.file} {self.place}: {self.before} -> {self.after}{suffix}"

    def write(self, folder: Path) -> None:
        """Write the changed impl into ``folder``."""
        write_copy(folder / IMPL.name, self.file, self.text)


def find_changes(files: tuple[str, ...] = ()) -> dict[str, Change]:
    """Return all changes to files of impl, keyed by name. No change affects a docstring.

    Args:
        files: The files; by default all except those of ``impl.distributed``. Each rank of
            ``impl.distributed`` runs in its own process, where coverage records no lines.

    Raises:
        FileNotFoundError: impl does not have one of the files.
    """
    paths = [IMPL / name for name in files] or list_sources()
    return {change.name: change for path in paths for change in _changes_of_file(path)}


def list_sources() -> list[Path]:
    """Return the files of impl, without those of ``impl.distributed``."""
    return sorted(path for path in IMPL.rglob("*.py") if path.parent.name != "distributed")


def _changes_of_file(path: Path) -> Iterator[Change]:
    code = path.read_text(encoding="utf-8")
    file = path.relative_to(IMPL).as_posix()
    scope_names = _scope_names_by_line(ast.parse(code))
    count: Counter[tuple[str, str, str]] = Counter()
    lines = code.splitlines(keepends=True)
    for start, end in itertools.pairwise(_find_boundaries(code)):
        statement = "".join(lines[start:end])
        for text in _changed_texts(statement):
            first, before, after = _first_difference(statement.splitlines(), text.splitlines())
            if not _is_redundant(before, after):
                line = start + first
                key = scope_names.get(line, ""), before, after
                count[key] += 1
                whole = "".join([*lines[:start], text, *lines[end:]])
                yield Change(file, key[0], line, before, after, whole, count[key])


def _find_boundaries(code: str) -> list[int]:
    """Return 0 and the number of the last line of each top-level statement."""
    statements = ast.parse(code).body
    return [0, *sorted({node.end_lineno or node.lineno for node in statements})]


def _changed_texts(statement: str) -> Iterable[str]:
    """Return the distinct changed texts of a top-level statement, in order."""
    # Each change needs a new syntax tree. Unpickling a tree is eight times as fast as parsing.
    tree = pickle.dumps(get_ast(statement))
    replaced = itertools.chain.from_iterable(
        _apply_operator(operator, tree) for operator in OPERATORS
    )
    return dict.fromkeys([*replaced, *operators.changed_texts(statement)])


def _apply_operator(operator_name: str, pickled_tree: bytes) -> Iterator[str]:
    """Yield the code of a pickled syntax tree after each change that an operator can make."""
    operator_class = plugins.get_operator(f"core/{operator_name}")
    for occurrence in itertools.count(0, _STRIDE.get(operator_name, 1)):
        visitor = MutationVisitor(occurrence, operator_class())
        changed = visitor.walk(pickle.loads(pickled_tree))
        if not visitor.mutation_applied:
            return
        text = changed.get_code()
        if _is_valid_python(text):
            yield text


def _is_valid_python(code: str) -> bool:
    with contextlib.suppress(SyntaxError):
        ast.parse(code)
        return True
    return False


def _is_redundant(before: str, after: str) -> bool:
    """Return whether a change is a double negation, or replaces ``*`` in a signature by ``/``."""
    return "not not" in after or after == before.replace("*,", "/,")


def _first_difference(before: list[str], after: list[str]) -> tuple[int, str, str]:
    """Return the first changed line's number, from 1, and the changed lines before and after."""
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    opcodes = matcher.get_opcodes()
    _, start, end, new_start, new_end = next(code for code in opcodes if code[0] != "equal")
    # RemoveDecorator also removes the empty lines above the decorator: skip the empty lines.
    line = next(number for number in range(start, end) if before[number].strip())
    return line + 1, _on_one_line(before[start:end]), _on_one_line(after[new_start:new_end])


def _on_one_line(lines: list[str]) -> str:
    return " ".join(line.strip() for line in lines if line.strip())


def _scope_names_by_line(tree: ast.AST, prefix: str = "") -> dict[int, str]:
    """Return, for each line number, the name of the innermost function or class around it."""
    scope_names: dict[int, str] = {}
    for node in ast.iter_child_nodes(tree):
        name = f"{prefix}{node.name}" if isinstance(node, _SCOPES) else prefix[:-1]
        if isinstance(node, _SCOPES):
            last = node.end_lineno or node.lineno
            scope_names |= dict.fromkeys(range(first_line_of(node), last + 1), name)
        scope_names |= _scope_names_by_line(node, f"{name}." if name else "")
    return scope_names


def first_line_of(node: ast.stmt) -> int:
    """Return the number of a statement's first line, decorators included."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])
