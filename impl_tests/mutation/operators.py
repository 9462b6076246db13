"""The mutation operators: a table of functions that find small edits in a syntax tree."""

import ast
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar

__all__ = ["OPERATORS", "ORDERING", "Edit", "apply_edit", "find_edits", "replaced_text"]

#: Names of functions that order work on devices or select the stream for new work.
ORDERING = frozenset(
    {
        "save_streams",
        "record_stream",
        "set_current_streams",
        "set_device_index",
        "set_stream",
        "wait_for_grad",
        "wait_stream",
        "with_saved_streams",
    }
)
#: Names of functions that call their second argument on the streams in their first argument.
_CALLERS = frozenset({"_call_on", "call_on_stream", "call_on_streams"})
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
#: An operator -> the operator that replaces it.
_REPLACED: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.FloorDiv: ast.Mult,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.And: ast.Or,
    ast.Or: ast.And,
}
#: A line number, from 1, and an offset in bytes within the line, as in ``ast``.
_Position = tuple[int, int]
_Node = ast.stmt | ast.expr
T = TypeVar("T")


class Edit(NamedTuple):
    """The start and the end of the code to replace, and the new code."""

    start: _Position
    end: _Position
    text: str


def find_edits(code: str) -> Iterator[tuple[str, Edit]]:
    """Yield each edit that an operator makes to ``code``, with the name of the operator."""
    nodes = list(_walk(ast.parse(code)))
    for name, operator in OPERATORS.items():
        for node in nodes:
            yield from ((name, edit) for edit in operator(node))


def apply_edit(code: str, edit: Edit) -> str:
    """Return ``code`` after an edit."""
    return code[: _offset(code, edit.start)] + edit.text + code[_offset(code, edit.end) :]


def replaced_text(code: str, edit: Edit) -> str:
    """Return the part of ``code`` that an edit replaces."""
    return code[_offset(code, edit.start) : _offset(code, edit.end)]


def _offset(code: str, position: _Position) -> int:
    """Return the number of characters before a position."""
    lines, (line, column) = code.splitlines(keepends=True), position
    return sum(map(len, lines[: line - 1])) + len(lines[line - 1].encode()[:column].decode())


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a tree, without annotations, type variables and parts of f-strings."""
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            is_type = isinstance(child, ast.Call) and ast.unparse(child.func) == "TypeVar"
            if (
                isinstance(child, ast.AST)
                and not is_type
                and name not in ("annotation", "returns")
            ):
                yield child
                if not isinstance(child, ast.JoinedStr):
                    yield from _walk(child)


def _replace(first: _Node, last: _Node, new: str | ast.AST) -> Edit:
    """Return the edit that replaces the nodes from ``first`` to ``last``."""
    end = last.end_lineno or last.lineno, last.end_col_offset or last.col_offset
    text = new if isinstance(new, str) else ast.unparse(new)
    return Edit((first.lineno, first.col_offset), end, text)


def _unparse_operand(node: ast.expr) -> str:
    """Return the code of an operand of ``and``, ``or`` and ``not``, in brackets if necessary."""
    needs_brackets = isinstance(node, (ast.BoolOp, ast.IfExp, ast.Lambda, ast.NamedExpr))
    return f"({ast.unparse(node)})" if needs_brackets else ast.unparse(node)


def _without_index(nodes: Sequence[T], index: int) -> list[T]:
    return [*nodes[:index], *nodes[index + 1 :]]


def _drop_statement(node: ast.AST) -> Iterator[Edit]:
    """Drop statements of a function, but not its docstring."""
    if isinstance(node, _FUNCTIONS):
        for inner in _body_nodes(node):
            is_docstring = isinstance(inner, ast.Expr) and isinstance(inner.value, ast.Constant)
            if isinstance(inner, _STATEMENTS) and not is_docstring:
                yield _replace(inner, inner, "pass")


def _body_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a function, without those of functions that it defines."""
    for node in ast.iter_child_nodes(function):
        if not isinstance(node, _FUNCTIONS):
            yield node
            yield from _body_nodes(node)


def _drop_context(node: ast.AST) -> Iterator[Edit]:
    """Drop a context, unless it has ``as``: the body needs the name that ``as`` binds."""
    if isinstance(node, ast.With):
        for index, item in enumerate(node.items):
            if item.optional_vars is None:
                others = ", ".join(map(ast.unparse, _without_index(node.items, index)))
                head = f"with {others}" if others else "if True"
                yield _replace(node, node.items[-1].context_expr, head)


def _drop_finally(node: ast.AST) -> Iterator[Edit]:
    if isinstance(node, ast.Try) and node.finalbody:
        yield _replace(node.finalbody[0], node.finalbody[-1], "pass")


def _drop_decorator(node: ast.AST) -> Iterator[Edit]:
    if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
        for decorator in node.decorator_list:
            yield _replace(decorator, decorator, "(lambda f: f)")


def _drop_operand(node: ast.AST) -> Iterator[Edit]:
    if isinstance(node, ast.BoolOp):
        word = " and " if isinstance(node.op, ast.And) else " or "
        for index in range(len(node.values)):
            operands = _without_index(node.values, index)
            yield _replace(node, node, word.join(map(_unparse_operand, operands)))


def _drop_keyword(node: ast.AST) -> Iterator[Edit]:
    """Drop a keyword argument, unless its value is True or False, which another operator flips."""
    if isinstance(node, ast.Call):
        for index, keyword in enumerate(node.keywords):
            if not _is_bool(keyword.value):
                keywords = _without_index(node.keywords, index)
                yield _replace(node, node, ast.Call(node.func, node.args, keywords))


def _is_bool(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, bool)


def _drop_iterations(node: ast.AST) -> Iterator[Edit]:
    if isinstance(node, ast.For):
        yield _replace(node.iter, node.iter, "[]")


def _fix_condition(node: ast.AST) -> Iterator[Edit]:
    """Replace a condition by True, by False, and by its opposite."""
    tests: Sequence[ast.expr] = ()
    if isinstance(node, ast.If | ast.IfExp | ast.While):
        tests = [node.test]
    elif isinstance(node, ast.comprehension):
        tests = node.ifs
    for test in tests:
        for fixed in sorted({"False", "True"} - {ast.unparse(test)}, reverse=True):
            yield _replace(test, test, fixed)
        if not _is_bool(test) and not _is_negated(test):
            yield _replace(test, test, ast.UnaryOp(ast.Not(), test))


def _is_negated(node: ast.expr) -> bool:
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)


def _replace_operator(node: ast.AST) -> Iterator[Edit]:
    if isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in _REPLACED:
        fields = {**dict(ast.iter_fields(node)), "op": _REPLACED[type(node.op)]()}
        yield _replace(node, node, type(node)(**fields))
    elif isinstance(node, ast.Compare):
        for index, op in enumerate(node.ops):
            if type(op) in _REPLACED:
                ops = [*node.ops[:index], _REPLACED[type(op)](), *node.ops[index + 1 :]]
                yield _replace(node, node, ast.Compare(node.left, ops, node.comparators))  # type: ignore[arg-type] # operators of comparisons


def _replace_constant(node: ast.AST) -> Iterator[Edit]:
    """Flip True and False, and add 1 to a number."""
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield _replace(node, node, str(not node.value))
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield _replace(node, node, str(node.value + 1))


def _replace_exception(node: ast.AST) -> Iterator[Edit]:
    """Catch an exception that nothing raises."""
    if isinstance(node, ast.ExceptHandler) and node.type is not None:
        yield _replace(node.type, node.type, "FloatingPointError")


def _unwrap_call(node: ast.AST) -> Iterator[Edit]:
    """Replace a call that orders work by its argument, or by the call that it makes."""
    match node:
        case ast.Call(ast.Name(name), [_, function, *arguments]) if name in _CALLERS:
            yield _replace(node, node, ast.Call(function, arguments, []))
        case ast.Call(ast.Name(name), [argument], []) if name in ORDERING:
            yield _replace(node, node, argument)


def _make_non_blocking(node: ast.AST) -> Iterator[Edit]:
    if isinstance(node, ast.keyword) and node.arg == "non_blocking" and not _is_bool(node.value):
        yield _replace(node.value, node.value, "True")


#: Name of an operator -> a function that yields its edits of a node.
OPERATORS: dict[str, Callable[[ast.AST], Iterator[Edit]]] = {
    "drop statement": _drop_statement,
    "drop context": _drop_context,
    "drop finally": _drop_finally,
    "drop decorator": _drop_decorator,
    "drop operand": _drop_operand,
    "drop keyword": _drop_keyword,
    "drop iterations": _drop_iterations,
    "fix condition": _fix_condition,
    "replace operator": _replace_operator,
    "replace constant": _replace_constant,
    "replace exception": _replace_exception,
    "unwrap call": _unwrap_call,
    "make non-blocking": _make_non_blocking,
}
