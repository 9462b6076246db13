"""The program that repeats a failed test with the values of the smallest failing call.

It is a test file that runs itself: the body of the test, with its arguments as constants.
"""

import ast
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from traceback import walk_tb
from types import CodeType, ModuleType
from typing import Any

import pytest

from spec_tests.failure import Failure
from spec_tests.machine import clauses, record
from spec_tests.machine.expressions import Expressions, NoExpressionError

_TEMPLATE = """\
{comment}

{imports}


{test}

if __name__ == "__main__":
    spec_tests.cli.repeat.run(__file__{selection}, {options})
"""
#: The modules whose fixtures each program has.
_PLUGINS = ("spec_tests.conftest", "spec_tests.machine.")


def add(
    item: pytest.Item,
    call: pytest.CallInfo[None],
    report: pytest.TestReport,
    found: Failure,
    options: Sequence[str],
) -> None:
    """Add the program to the report of a test of a clause that fails.

    Args:
        item: The test.
        call: Its call.
        report: The report.
        found: The failure.
        options: The options of pytest that run the test with the target and devices of this run.
    """
    names = clauses.clauses_of_test(item)
    if call.excinfo is not None and names and record.verdict_of(report) == "fail":
        about = f"{names[0]}: {_load_clauses()[names[0]].says}\n\n{found.text}"
        drawn = drawn_arguments(item, call.excinfo.value)
        statements = getattr(call.excinfo.value, "statements", None)
        text = _text(item, drawn, about, statements, options)
        report.user_properties.append((record.PROGRAM, text))


def _text(
    item: pytest.Item,
    drawn: Mapping[str, Any],
    about: str,
    statements: Callable[[Expressions], list[str]] | None,
    options: Sequence[str],
) -> str:
    """Return the program. The error of a life has the ``statements`` of its test."""
    expressions, selection = Expressions(), ""
    try:
        if statements is None:
            test = _pinned_test(item, drawn, expressions)
        else:
            lines = [f"    {line}" for line in statements(expressions)]
            test = _join(item, ["target", "topology"], lines, expressions)
    except NoExpressionError as error:
        # Import the test. Hypothesis draws its arguments again.
        expressions, selection = Expressions(), f' + "::" + {item.name!r}'
        expressions.add_import(_function(item).__module__, _function(item).__name__)
        test = f"# The test is imported, because {error}.\n"
    for fixture in _fixtures(item):
        expressions.add_import(fixture.__module__, fixture.__name__)
    expressions.add_import("spec_tests.cli.repeat")
    lines = f"{about}\n\nRepeats {item.nodeid}.".splitlines()
    return _TEMPLATE.format(
        comment="\n".join(f"# {line}".rstrip() for line in lines),
        imports=expressions.imports,
        test=test,
        selection=selection,
        options=", ".join(map(repr, options)),
    )


def drawn_arguments(item: pytest.Item, error: BaseException) -> dict[str, Any]:
    """Return the arguments that Hypothesis drew for the failing call, by name."""
    function = getattr(getattr(item, "obj", None), "hypothesis", None)
    if function is None:
        return {}
    code = inspect.unwrap(function.inner_test).__code__
    frames = [frame for frame, _ in walk_tb(error.__traceback__) if frame.f_code is code]
    names = code.co_varnames[: code.co_argcount]
    fixtures = getattr(item, "fixturenames", ())
    known = frames[-1].f_locals if frames else {}
    return {name: known[name] for name in names if name in known and name not in fixtures}


@cache
def _load_clauses() -> dict[str, clauses.Clause]:
    return clauses.load()


def _function(item: pytest.Item) -> Any:
    """Return the function of a test without the decorator of Hypothesis."""
    function = item.obj  # type: ignore[attr-defined]  # each test of the suite is a function
    handle = getattr(function, "hypothesis", None)
    return inspect.unwrap(function if handle is None else handle.inner_test)


def _pinned_test(item: pytest.Item, drawn: Mapping[str, Any], expressions: Expressions) -> str:
    """Return a test with the body of a test, without its drawn arguments and parameters."""
    function = _function(item)
    if function.__code__.co_freevars:
        raise NoExpressionError(f"{function.__name__} is a closure")
    given = getattr(item, "funcargs", {})
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    # The argument of a fixture with parameters is not the parameter.
    values = {name: value for name, value in parameters.items() if given.get(name) is value}
    values |= drawn
    names = list(inspect.signature(function).parameters)
    lines = [f"    {name} = {expressions.of(values[name])}" for name in names if name in values]
    used = function.__globals__
    for name in sorted(set(_global_names(function.__code__)) & used.keys()):
        if name.isidentifier():  # pytest adds names such as @py_builtins
            _add_global(name, used[name], function.__module__, expressions)
    arguments = [name for name in names if name not in values]
    return _join(item, arguments, [*lines, *([""] if lines else []), _body(function)], expressions)


def _join(
    item: pytest.Item, arguments: Sequence[str], lines: Sequence[str], expressions: Expressions
) -> str:
    """Return the text of a test with the marks and the name of ``item``."""
    marks = [
        f"@pytest.mark.filterwarnings({', '.join(map(repr, mark.args))})"
        for mark in item.iter_markers("filterwarnings")
    ]
    if marks:
        expressions.add_import("pytest")
    head = [*marks, f"def {_function(item).__name__}({', '.join(arguments)}):"]
    return "\n".join([*head, *lines, ""])


def _add_global(name: str, value: Any, user: str, expressions: Expressions) -> None:
    """Import a global of the module ``user``: if possible, from the place of its definition."""
    if name in sys.modules and value is sys.modules[name]:
        expressions.add_import(name)
    elif isinstance(value, ModuleType) and value.__name__.endswith(f".{name}"):
        expressions.add_import(value.__name__.rpartition(".")[0], name)
    else:
        is_defined = getattr(value, "__qualname__", None) == name
        expressions.add_import(value.__module__ if is_defined else user, name)


def _body(function: Any) -> str:
    source = textwrap.dedent(inspect.getsource(function))
    (definition,) = ast.parse(source).body
    assert isinstance(definition, ast.FunctionDef)
    return "\n".join(source.splitlines()[definition.body[0].lineno - 1 :])


def _global_names(code: CodeType) -> Iterator[str]:
    """Yield the names of globals and attributes that a function and its inner functions use."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _global_names(constant)


def _fixtures(item: pytest.Item) -> Iterator[Any]:
    """Yield the functions of the fixtures that are not defined in a plugin of the suite."""
    definitions = item._fixtureinfo.name2fixturedefs  # type: ignore[attr-defined]  # no public name
    for name in definitions:
        function = definitions[name][-1].func
        module = function.__module__
        if module.startswith("spec_tests.") and not module.startswith(_PLUGINS):
            yield function
