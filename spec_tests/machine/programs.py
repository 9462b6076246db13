"""The program that repeats a failed test with the values of the smallest failing call.

It is a test file that runs itself: the body of the test, with its arguments as constants.
"""

import ast
import builtins
import cmath
import dataclasses
import inspect
import operator
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from traceback import walk_tb
from types import CodeType, ModuleType
from typing import Any

import pytest
import torch

from spec_tests.failure import Failure, show
from spec_tests.machine import clauses, processes, verdicts
from spec_tests.machine.options import SETTINGS
from spec_tests.machine.target import PARTS

#: Classes whose ``repr`` is an expression.
_LITERALS = (bool, int, float, complex, str, bytes, range, type(None))
#: Classes whose ``repr`` is an expression that needs ``import torch``.
_OF_TORCH = (torch.dtype, torch.layout, torch.memory_format)


class NoExpressionError(Exception):
    """The error for a value, such as a lambda, that no expression makes."""


class Expressions:
    """Returns expressions, and collects the imports of all of them."""

    def __init__(self) -> None:
        self._imports: set[str] = set()

    @property
    def imports(self) -> str:
        """The lines that import all modules and names."""
        return "\n".join(sorted(self._imports))

    def add_import(self, module: str, name: str = "") -> None:
        """Add ``import module`` or ``from module import name``."""
        self._imports.add(f"from {module} import {name}" if name else f"import {module}")

    def of(self, value: Any) -> str:
        """Return an expression that makes an equal value.

        Raises:
            NoExpressionError: There is no expression for a part of the value.
        """
        if type(value) in (float, complex) and not cmath.isfinite(value):
            return f'{type(value).__name__}("{value}")'
        if value is ... or type(value) in _LITERALS:
            return "..." if value is ... else repr(value)
        if type(value) in _OF_TORCH:
            self.add_import("torch")
            return repr(value)
        if isinstance(value, torch.device):
            self.add_import("torch", "device")
            return repr(value)
        if type(value) in (list, tuple, set):
            return self._of_collection(value)
        if type(value) is dict:
            pairs = (f"{self.of(key)}: {self.of(item)}" for key, item in value.items())
            return f"{{{', '.join(pairs)}}}"
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return self._of_dataclass(value)
        return self.of_named(value)

    def _of_collection(self, value: Any) -> str:
        members = ", ".join(map(self.of, value))
        if isinstance(value, tuple):
            return f"({members},)" if len(value) == 1 else f"({members})"
        return f"[{members}]" if isinstance(value, list) else f"set([{members}])"

    def _of_dataclass(self, value: Any) -> str:
        """Return a call of the class with those fields that differ from their defaults."""
        arguments = []
        is_positional = True
        for field in dataclasses.fields(value):
            current, default = getattr(value, field.name, None), field.default
            if field.default_factory is not dataclasses.MISSING:
                default = field.default_factory()
            if not field.init or (type(default) is type(current) and default == current):
                is_positional = False
                continue
            is_positional = is_positional and not field.kw_only
            keyword = "" if is_positional else f"{field.name}="
            arguments.append(f"{keyword}{self.of(current)}")
        return f"{self.of_named(type(value))}({', '.join(arguments)})"

    def of_named(self, value: Any) -> str:
        """Return the name of a class or function, and import it.

        Raises:
            NoExpressionError: The value has no name in its module.
        """
        module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
        try:
            named = operator.attrgetter(name or "")(sys.modules[module or ""])
        except (AttributeError, KeyError):
            named = None
        if named is not value or module is None or name is None:
            raise NoExpressionError(f"no expression makes {show(value)}")
        if module != builtins.__name__:
            self.add_import(module, name.partition(".")[0])
        return str(name)


_TEMPLATE = """\
{comment}

{imports}
{marks}

{test}

if __name__ == "__main__":
    repeat(__file__{selection}, {options})
"""


def add_program(
    item: pytest.Item,
    call: pytest.CallInfo[None],
    report: pytest.TestReport,
    failure: Failure,
    options: Sequence[str],
) -> None:
    """Add the program to the report of a test that violates a clause.

    ``options`` are those of pytest that run the test with the target and devices of this run.
    """
    violated = verdicts.property_of(report, verdicts.VIOLATED)
    if call.excinfo is None or not violated or verdicts.verdict_in(report) != "fail":
        return
    expressions, selection, error = Expressions(), "", call.excinfo.value
    # The error of a life has the statements of its test.
    statements = getattr(error, "statements", None)
    try:
        if statements is None:
            test = _pinned_test(item, drawn_arguments(item, error), expressions)
        else:
            lines = [f"    {line}" for line in statements(expressions)]
            test = _join(item, ["target", "topology"], lines)
    except NoExpressionError as missing:
        # Import the test. Hypothesis draws its arguments again.
        expressions, selection = Expressions(), f' + "::" + {item.name!r}'
        expressions.add_import(_function(item).__module__, _function(item).__name__)
        test = f"# The test is imported, because {missing}.\n"
    for fixture in _fixtures(item):
        expressions.add_import(fixture.__module__, fixture.__name__)
    expressions.of_named(repeat)
    marks = _marks(item)
    if marks:
        expressions.add_import("pytest")
    says = clauses.of_run(item.config)[violated].says
    about = f"{violated}: {says}\n\n{failure.text}\n\nRepeats {item.nodeid}."
    text = _TEMPLATE.format(
        comment="\n".join(f"# {line}".rstrip() for line in about.splitlines()),
        imports=expressions.imports,
        marks=marks,
        test=test,
        selection=selection,
        options=", ".join(map(repr, options)),
    )
    report.user_properties.append((verdicts.PROGRAM, text))


def drawn_arguments(item: pytest.Item, error: BaseException) -> dict[str, Any]:
    """Return the arguments that Hypothesis drew for the failing call, by name."""
    function = getattr(getattr(item, "obj", None), "hypothesis", None)
    if function is None:
        return {}
    code = inspect.unwrap(function.inner_test).__code__
    frames = [frame for frame, _ in walk_tb(error.__traceback__) if frame.f_code is code]
    names = code.co_varnames[: code.co_argcount]
    fixtures = getattr(item, "fixturenames", ())
    values = frames[-1].f_locals if frames else {}
    return {name: values[name] for name in names if name in values and name not in fixtures}


def call_of(item: pytest.Item) -> str:
    """Return the code of the first call of the target in a test, or an empty text."""
    source = ast.parse(textwrap.dedent(inspect.getsource(_function(item))))
    calls = [node for node in ast.walk(source) if isinstance(node, ast.Call)]
    calls.sort(key=lambda node: (node.lineno, node.col_offset))
    return next((ast.unparse(node) for node in calls if _is_call_of_target(node.func)), "")


def _is_call_of_target(function: ast.expr) -> bool:
    """Return whether a function is ``wrap``, ``apply`` or one such as ``target.comm.scatter``."""
    match function:
        case ast.Name(id="wrap") | ast.Attribute(attr="apply"):
            return True
        case ast.Attribute(value=ast.Attribute(attr=part)):
            return part in PARTS
    return False


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
        # pytest adds names such as @py_builtins. A class has the attribute __name__, too.
        if name.isidentifier() and not name.startswith("__"):
            _add_global(name, used[name], function.__module__, expressions)
    arguments = [name for name in names if name not in values]
    if missing := {*arguments} - {*getattr(item, "fixturenames", ())}:
        raise NoExpressionError(f"the failure shows no value of {', '.join(sorted(missing))}")
    return _join(item, arguments, [*lines, *([""] if lines else []), _body(function)])


def _join(item: pytest.Item, arguments: Sequence[str], lines: Sequence[str]) -> str:
    """Return the text of a test with the name of ``item``."""
    head = f"def {_function(item).__name__}({', '.join(arguments)}):"
    return "\n".join([head, *lines, ""])


def _marks(item: pytest.Item) -> str:
    """Return the marks of ``item`` with filters of warnings: a program may import its test."""
    args = [mark.args for mark in item.iter_markers("filterwarnings")]
    marks = [f"pytest.mark.filterwarnings({', '.join(map(repr, each))})" for each in args]
    return f"\npytestmark = [{', '.join(marks)}]\n" if marks else ""


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
        if module.startswith("spec_tests.") and not module.startswith("spec_tests.machine."):
            yield function


def repeat(test: str, *options: str) -> None:
    """Run a test of a file, which is outside the suite, and exit with the status of pytest.

    The programs that a run writes for its failures call it.

    Args:
        test: The file, or the file and the name of the test.
        options: Options of pytest and of the suite, such as ``--target=NAME``.
    """
    sys.path.insert(0, str(Path.cwd()))
    folder = Path(test.partition("::")[0]).resolve().parent
    settings = ["-c", str(SETTINGS), f"--rootdir={folder}", f"--confcutdir={folder}"]
    plugins = ["-p", "spec_tests", "-p", "no:cacheprovider"]
    # The program has imported the suite before pytest, which warns of that for each plugin.
    output = ["-q", "--no-header", "-Wignore:Module already imported so cannot be rewritten"]
    status = pytest.main([test, *settings, *plugins, *output, "--races", *options])
    processes.end_soon(status)
    sys.exit(status)
