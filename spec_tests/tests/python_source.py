"""Imports, names and constants of a Python file, read from its syntax tree."""

import ast
from collections.abc import Iterator
from pathlib import Path


def imported_modules(path: Path) -> Iterator[str]:
    """Yield the names of all imported modules; relative names have leading dots.

    ``from package import name`` yields ``package`` and ``package.name``, since ``name`` may be a
    module.
    """
    for node in ast.walk(_parse(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = "." * node.level + (node.module or "")
            yield package
            dot = "" if package.endswith(".") else "."
            yield from (f"{package}{dot}{alias.name}" for alias in node.names)


def dotted_names(path: Path) -> Iterator[str]:
    """Yield every attribute access as text, such as ``torch.nn.parallel``."""
    for node in ast.walk(_parse(path)):
        if isinstance(node, ast.Attribute):
            yield ast.unparse(node)


def strings(path: Path) -> Iterator[str]:
    """Yield every string constant, docstrings included."""
    for node in ast.walk(_parse(path)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def comparisons_with(path: Path, expression: str) -> Iterator[str]:
    """Yield, as source text, the comparisons with ``expression`` and the match cases for it.

    A comparison with a list or tuple that contains ``expression`` is yielded, too.
    """
    for node in ast.walk(_parse(path)):
        if isinstance(node, ast.Compare):
            operands = [node.left, *node.comparators]
            members = [member for each in operands for member in getattr(each, "elts", ())]
            yield from [ast.unparse(node)] * (expression in map(ast.unparse, operands + members))
        elif isinstance(node, ast.MatchValue):
            yield from [ast.unparse(node)] * (expression == ast.unparse(node))


def _parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))
