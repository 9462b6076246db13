"""Changes for which cosmic-ray has no operator: something dropped, or a condition fixed.

Dropped are, one at a time: a statement of a function, a context of a ``with``, what a ``finally``
does, an operand of ``and`` and ``or``, a keyword argument. A condition is fixed to True and to
False.
"""

import ast
import itertools
from collections.abc import Iterator, Sequence
from typing import TypeVar

#: What a function does, one step each. Without what it imports or defines nothing would run.
_STEPS = (
    ast.Expr,
    ast.Assign,
    ast.AnnAssign,
    ast.AugAssign,
    ast.Delete,
    ast.Raise,
    ast.Return,
    ast.Break,
    ast.Continue,
)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
#: What an operand may be without brackets round it.
_BINDS_LESS = (ast.BoolOp, ast.IfExp, ast.Lambda, ast.NamedExpr)

_Node = ast.stmt | ast.expr
#: A line, counted from one, and the bytes before a place in it, as the parser counts.
_Place = tuple[int, int]
#: Where to begin and to end, and the text to put in place of what is between.
_Edit = tuple[_Place, _Place, str]
T = TypeVar("T")


def texts(code: str) -> Iterator[str]:
    """Yield ``code`` with one thing dropped or fixed, for everything that can be."""
    nodes = list(ast.walk(ast.parse(code)))
    for operator in (_statements, _contexts, _finals, _operands, _keywords, _conditions):
        for start, end, text in itertools.chain.from_iterable(map(operator, nodes)):
            yield _until(code, start) + text + code[len(_until(code, end)) :]


def _until(code: str, place: _Place) -> str:
    lines, (line, column) = code.splitlines(keepends=True), place
    return "".join(lines[: line - 1]) + lines[line - 1].encode()[:column].decode()


def _edit(first: _Node, last: _Node, text: str) -> _Edit:
    """Put ``text`` in place of all from one node to another."""
    end = last.end_lineno or last.lineno, last.end_col_offset or last.col_offset
    return (first.lineno, first.col_offset), end, text


def _statements(node: ast.AST) -> Iterator[_Edit]:
    """Drop what a function does, but not its docstring."""
    if isinstance(node, _FUNCTIONS):
        for inner in _own_nodes(node):
            if isinstance(inner, _STEPS) and not _is_text(inner):
                yield _edit(inner, inner, "pass")


def _own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """What is in a function, but not in one that it defines."""
    for node in ast.iter_child_nodes(function):
        if not isinstance(node, _FUNCTIONS):
            yield node
            yield from _own_nodes(node)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _contexts(node: ast.AST) -> Iterator[_Edit]:
    """Drop a context; one that gives a name to what it yields cannot be missed."""
    if isinstance(node, ast.With):
        for index, item in enumerate(node.items):
            if item.optional_vars is None:
                rest = ", ".join(map(ast.unparse, _without(node.items, index)))
                head = f"with {rest}" if rest else "if True"
                yield _edit(node, node.items[-1].context_expr, head)


def _finals(node: ast.AST) -> Iterator[_Edit]:
    if isinstance(node, ast.Try) and node.finalbody:
        yield _edit(node.finalbody[0], node.finalbody[-1], "pass")


def _operands(node: ast.AST) -> Iterator[_Edit]:
    if isinstance(node, ast.BoolOp):
        word = " and " if isinstance(node.op, ast.And) else " or "
        for index in range(len(node.values)):
            rest = _without(node.values, index)
            yield _edit(node, node, word.join(map(_bracketed, rest)))


def _bracketed(node: ast.expr) -> str:
    text = ast.unparse(node)
    return f"({text})" if isinstance(node, _BINDS_LESS) else text


def _keywords(node: ast.AST) -> Iterator[_Edit]:
    """Drop a keyword argument; True and False are turned round by cosmic-ray.

    What a type variable is bound to only type checkers read.
    """
    if isinstance(node, ast.Call) and ast.unparse(node.func) != "TypeVar":
        for index, keyword in enumerate(node.keywords):
            if not _is_switch(keyword.value):
                rest = _without(node.keywords, index)
                yield _edit(node, node, ast.unparse(ast.Call(node.func, node.args, rest)))


def _is_switch(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, bool)


def _conditions(node: ast.AST) -> Iterator[_Edit]:
    found: Sequence[ast.expr] = ()
    if isinstance(node, ast.If | ast.IfExp | ast.While):
        found = [node.test]
    elif isinstance(node, ast.comprehension):
        found = node.ifs
    for test in found:
        for fixed in sorted({"False", "True"} - {ast.unparse(test)}, reverse=True):
            yield _edit(test, test, fixed)


def _without(nodes: Sequence[T], index: int) -> list[T]:
    return [*nodes[:index], *nodes[index + 1 :]]
