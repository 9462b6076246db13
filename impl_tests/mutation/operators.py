"""Mutation operators that cosmic-ray lacks: drop an element of the code, or fix a condition.

Each change drops one statement of a function, one context of a ``with``, the body of a
``finally``, one operand of ``and`` or ``or``, or one keyword argument; or it replaces a condition
by True or by False.
"""

import ast
import itertools
from collections.abc import Iterator, Sequence
from typing import TypeVar

#: Kinds of statements that are dropped. Imports and definitions are kept, because a function
#: could not run without them.
_STATEMENTS = (
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
#: Kinds of expressions that need brackets as operands of ``and`` and ``or``.
_NEEDS_BRACKETS = (ast.BoolOp, ast.IfExp, ast.Lambda, ast.NamedExpr)

_Node = ast.stmt | ast.expr
#: A line number, from 1, and an offset in bytes within the line, as in ``ast``.
_Position = tuple[int, int]
#: The start and the end of the code to replace, and the new code.
_Edit = tuple[_Position, _Position, str]
T = TypeVar("T")


def changed_texts(code: str) -> Iterator[str]:
    """Yield the code after each possible change. Each change is made to the original code."""
    nodes = list(ast.walk(ast.parse(code)))
    operators = (
        _drop_statements,
        _drop_contexts,
        _drop_finally,
        _drop_operands,
        _drop_keywords,
        _fix_conditions,
    )
    for operator in operators:
        for edit in itertools.chain.from_iterable(map(operator, nodes)):
            yield apply_edit(code, edit)


def apply_edit(code: str, edit: _Edit) -> str:
    """Return ``code`` after an edit."""
    start, end, text = edit
    return _text_before(code, start) + text + code[len(_text_before(code, end)) :]


def _text_before(code: str, end: _Position) -> str:
    lines, (line, column) = code.splitlines(keepends=True), end
    return "".join(lines[: line - 1]) + lines[line - 1].encode()[:column].decode()


def replace_nodes(first: _Node, last: _Node, text: str) -> _Edit:
    """Return the edit that replaces the nodes from ``first`` to ``last`` by ``text``."""
    end = last.end_lineno or last.lineno, last.end_col_offset or last.col_offset
    return (first.lineno, first.col_offset), end, text


def _drop_statements(node: ast.AST) -> Iterator[_Edit]:
    """Drop statements of a function, but not its docstring."""
    if isinstance(node, _FUNCTIONS):
        for inner in _body_nodes(node):
            if isinstance(inner, _STATEMENTS) and not _is_constant(inner):
                yield replace_nodes(inner, inner, "pass")


def _body_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a function, without those of functions that it defines."""
    for node in ast.iter_child_nodes(function):
        if not isinstance(node, _FUNCTIONS):
            yield node
            yield from _body_nodes(node)


def _is_constant(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _drop_contexts(node: ast.AST) -> Iterator[_Edit]:
    """Drop a context, unless it has ``as``: the body needs the name that ``as`` binds."""
    if isinstance(node, ast.With):
        for index, item in enumerate(node.items):
            if item.optional_vars is None:
                others = ", ".join(map(ast.unparse, _without_index(node.items, index)))
                head = f"with {others}" if others else "if True"
                yield replace_nodes(node, node.items[-1].context_expr, head)


def _drop_finally(node: ast.AST) -> Iterator[_Edit]:
    if isinstance(node, ast.Try) and node.finalbody:
        yield replace_nodes(node.finalbody[0], node.finalbody[-1], "pass")


def _drop_operands(node: ast.AST) -> Iterator[_Edit]:
    if isinstance(node, ast.BoolOp):
        operator = " and " if isinstance(node.op, ast.And) else " or "
        for index in range(len(node.values)):
            operands = _without_index(node.values, index)
            yield replace_nodes(node, node, operator.join(map(_unparse_operand, operands)))


def _unparse_operand(node: ast.expr) -> str:
    text = ast.unparse(node)
    return f"({text})" if isinstance(node, _NEEDS_BRACKETS) else text


def _drop_keywords(node: ast.AST) -> Iterator[_Edit]:
    """Drop a keyword argument, unless its value is True or False.

    cosmic-ray's operators change True and False. Arguments of TypeVar are kept, because only type
    checkers read them.
    """
    if isinstance(node, ast.Call) and ast.unparse(node.func) != "TypeVar":
        for index, keyword in enumerate(node.keywords):
            if not _is_bool(keyword.value):
                keywords = _without_index(node.keywords, index)
                yield replace_nodes(
                    node, node, ast.unparse(ast.Call(node.func, node.args, keywords))
                )


def _is_bool(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, bool)


def _fix_conditions(node: ast.AST) -> Iterator[_Edit]:
    """Replace a condition by True and by False."""
    tests: Sequence[ast.expr] = ()
    if isinstance(node, ast.If | ast.IfExp | ast.While):
        tests = [node.test]
    elif isinstance(node, ast.comprehension):
        tests = node.ifs
    for test in tests:
        for fixed in sorted({"False", "True"} - {ast.unparse(test)}, reverse=True):
            yield replace_nodes(test, test, fixed)


def _without_index(nodes: Sequence[T], index: int) -> list[T]:
    return [*nodes[:index], *nodes[index + 1 :]]
