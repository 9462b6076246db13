"""The mutation operators: a table of functions that change a node of a syntax tree."""

import ast
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

__all__ = ["OPERATORS", "ORDERING", "find_edits", "replaced"]

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
T = TypeVar("T")
N = TypeVar("N", bound=ast.AST)


def find_edits(tree: ast.AST) -> Iterator[tuple[str, ast.AST, ast.AST]]:
    """Yield, for each change of a node, the operator, the node and the new node."""
    nodes = list(_walk(tree))
    for name, operator in OPERATORS.items():
        for node in nodes:
            for new in operator(node):
                yield name, node, new


def replaced(tree: ast.AST, node: ast.AST, new: ast.AST) -> ast.AST:
    """Put ``new`` in the place of ``node`` in a tree. Return the tree, which has changed."""

    class Transformer(ast.NodeTransformer):
        def visit(self, each: ast.AST) -> ast.AST:
            return new if each is node else self.generic_visit(each)

    return Transformer().visit(tree)


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a tree that operators may change.

    These are not annotations, type variables, parts of f-strings, and statements of a class or a
    module.
    """
    is_scope = isinstance(node, ast.Module | ast.ClassDef)
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            is_type = isinstance(child, ast.Call) and ast.unparse(child.func) == "TypeVar"
            if (
                isinstance(child, ast.AST)
                and not is_type
                and name not in ("annotation", "returns")
            ):
                if not (is_scope and isinstance(child, _STATEMENTS)):
                    yield child
                if not isinstance(child, ast.JoinedStr):
                    yield from _walk(child)


def _with(node: N, **fields: object) -> N:
    """Return a node like ``node`` with other ``fields``."""
    return ast.copy_location(type(node)(**{**dict(ast.iter_fields(node)), **fields}), node)


def _without_index(nodes: Sequence[T], index: int) -> list[T]:
    return [*nodes[:index], *nodes[index + 1 :]]


def _is_bool(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, bool)


def _drop_statement(node: ast.AST) -> Iterator[ast.AST]:
    """Drop a statement of a function, but not a docstring."""
    is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    if isinstance(node, _STATEMENTS) and not is_text:
        yield ast.Pass()


def _drop_context(node: ast.AST) -> Iterator[ast.AST]:
    """Drop a context, unless it has ``as``: the body needs the name that ``as`` binds."""
    if isinstance(node, ast.With):
        for index, item in enumerate(node.items):
            if item.optional_vars is None:
                items = _without_index(node.items, index)
                yield _with(node, items=items) if items else _if_true(node.body)


def _if_true(body: list[ast.stmt]) -> ast.If:
    return ast.If(ast.Constant(True), body, [])


def _drop_finally(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Try) and node.finalbody:
        yield _with(node, finalbody=[ast.Pass()])


def _drop_decorator(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
        for index in range(len(node.decorator_list)):
            yield _with(node, decorator_list=_without_index(node.decorator_list, index))


def _drop_operand(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.BoolOp):
        for index in range(len(node.values)):
            values = _without_index(node.values, index)
            yield _with(node, values=values) if len(values) > 1 else values[0]


def _drop_keyword(node: ast.AST) -> Iterator[ast.AST]:
    """Drop a keyword argument, unless its value is True or False, which another operator flips."""
    if isinstance(node, ast.Call):
        for index, keyword in enumerate(node.keywords):
            if not _is_bool(keyword.value):
                yield _with(node, keywords=_without_index(node.keywords, index))


def _negate_condition(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.If | ast.IfExp | ast.While):
        yield _with(node, test=ast.UnaryOp(ast.Not(), node.test))
    elif isinstance(node, ast.comprehension):
        for index, test in enumerate(node.ifs):
            others = _without_index(node.ifs, index)
            yield _with(node, ifs=[ast.UnaryOp(ast.Not(), test), *others])


def _replace_operator(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in _REPLACED:
        yield _with(node, op=_REPLACED[type(node.op)]())
    elif isinstance(node, ast.Compare):
        for index, op in enumerate(node.ops):
            if type(op) in _REPLACED:
                new = _REPLACED[type(op)]()
                yield _with(node, ops=[*node.ops[:index], new, *node.ops[index + 1 :]])


def _replace_constant(node: ast.AST) -> Iterator[ast.AST]:
    """Flip True and False, and add 1 to a number."""
    if _is_bool(node):
        yield ast.Constant(not node.value)  # type: ignore[attr-defined] # of a Constant
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield ast.Constant(node.value + 1)


def _replace_exception(node: ast.AST) -> Iterator[ast.AST]:
    """Catch an exception that nothing raises."""
    if isinstance(node, ast.ExceptHandler) and node.type is not None:
        yield _with(node, type=ast.Name("FloatingPointError"))


def _unwrap_call(node: ast.AST) -> Iterator[ast.AST]:
    """Replace a call that orders work by its argument, or by the call that it makes."""
    match node:
        case ast.Call(ast.Name(name), [_, function, *arguments]) if name in _CALLERS:
            yield ast.Call(function, arguments, [])
        case ast.Call(ast.Name(name), [argument], []) if name in ORDERING:
            yield argument


def _make_non_blocking(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.keyword) and node.arg == "non_blocking" and not _is_bool(node.value):
        yield _with(node, value=ast.Constant(True))


#: Name of an operator -> a function that yields new nodes in the place of a node.
OPERATORS: dict[str, Callable[[ast.AST], Iterator[ast.AST]]] = {
    "drop statement": _drop_statement,
    "drop context": _drop_context,
    "drop finally": _drop_finally,
    "drop decorator": _drop_decorator,
    "drop operand": _drop_operand,
    "drop keyword": _drop_keyword,
    "negate condition": _negate_condition,
    "replace operator": _replace_operator,
    "replace constant": _replace_constant,
    "replace exception": _replace_exception,
    "unwrap call": _unwrap_call,
    "make non-blocking": _make_non_blocking,
}
