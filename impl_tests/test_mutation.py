"""impl_tests.mutation: changes to impl, and the order of tests."""

import ast
import re

import pytest

from impl_tests.changed_copy import IMPL
from impl_tests.mutation import changes, operators
from impl_tests.mutation.lines import ExecutedLines
from impl_tests.mutation.trials import order_tests

MARKERS = changes.find_changes(("_containers.py",))
#: The name of the change that removes the decorator of the class Whole.
NO_DATACLASS = "_containers.py Whole: @dataclass(frozen=True, slots=True, eq=False) -> "
#: Functions whose names match this pattern usually order work on devices.
ORDERING_NAME = re.compile(
    r"wait_|synchron|record_|event|query|set_stream|on_stream", re.IGNORECASE
)
#: Functions that match ORDERING_NAME but do not order work.
OTHERS = {
    "_record_of_thread",
    "record_function",
    "get_running_loop",
    "wait_for_one",  # waits for another thread
    "synchronize",  # only finds out that a device is free
}
#: Pairs of an operator and a code -> the changed codes.
CHANGED_CODES = {
    ("drop statement", "def f():\n a()\n b = 1"): [
        "def f():\n pass\n b = 1",
        "def f():\n a()\n pass",
    ],
    ("drop statement", 'def f(): "text"; a()'): ['def f(): "text"; pass'],
    ("drop statement", "a()\nclass B: c = 1"): [],
    ("drop context", "with a, b(1) as c, d: e"): [
        "with b(1) as c, d: e",
        "with a, b(1) as c: e",
    ],
    ("drop context", "with a(): b"): ["if True: b"],
    ("drop finally", "try: a\nfinally:\n b\n c"): ["try: a\nfinally:\n pass"],
    ("drop decorator", "@a\n@b(1)\ndef f(): c"): [
        "@b(1)\ndef f(): c",
        "@a\ndef f(): c",
    ],
    ("drop operand", "a and b(c)"): ["b(c)", "a"],
    ("drop operand", "a or b and c or d"): [
        "(b and c) or d",
        "a or d",
        "a or (b and c)",
        "a or c or d",
        "a or b or d",
    ],
    ("drop keyword", "f(a, b=1, *c, **d)"): ["f(a, *c, **d)", "f(a, *c, b=1)"],
    ("drop keyword", "f(a, strict=True)"): [],
    ("drop keyword", 'T = TypeVar("T", bound=A)'): [],
    ("drop keyword", 'f"{g(a, b=c)}"'): [],
    ("drop iterations", "for a in b(c): d"): ["for a in []: d"],
    ("fix condition", "if a: b"): ["if True: b", "if False: b", "if not a: b"],
    ("fix condition", "a if not b else c"): ["a if True else c", "a if False else c"],
    ("fix condition", "while True: b"): ["while False: b"],
    ("fix condition", "[a for a in b if c]"): [
        "[a for a in b if True]",
        "[a for a in b if False]",
        "[a for a in b if not c]",
    ],
    ("replace operator", "(a + b) // c"): ["(a + b) * c", "(a - b) // c"],
    ("replace operator", "a < b <= c"): ["a <= b <= c", "a < b < c"],
    ("replace operator", "a and b"): ["a or b"],
    ("replace constant", "f(1, True, 'a')"): ["f(2, True, 'a')", "f(1, False, 'a')"],
    ("replace constant", "a: Literal[1] = 1"): ["a: Literal[1] = 2"],
    ("replace exception", "try: a\nexcept B: c"): ["try: a\nexcept FloatingPointError: c"],
    ("unwrap call", "a = wait_for_grad(b)"): ["a = b"],
    ("unwrap call", "call_on_streams(a, b, c, d)"): ["b(c, d)"],
    ("make non-blocking", "a.copy_(b, non_blocking=c)"): ["a.copy_(b, non_blocking=True)"],
}


def record(lines=(), file="_chunks.py"):
    """Return the record of a passed test that executes ``lines`` of ``file``."""
    return {"seconds": 1, "lines": {file: lines} if lines else {}}


@pytest.mark.parametrize(("operator", "code"), CHANGED_CODES)
def test_each_operator_makes_its_changes(operator, code):
    tree, found = ast.parse(code), []
    for name, node, new in operators.find_edits(tree):
        if name == operator:
            found.append(ast.unparse(operators.replaced(tree, node, new)))
            operators.replaced(tree, new, node)
    assert found == [ast.unparse(ast.parse(each)) for each in CHANGED_CODES[operator, code]]


def test_each_operator_has_an_example():
    assert {operator for operator, _ in CHANGED_CODES} == operators.OPERATORS.keys()


def test_each_call_that_orders_work_has_a_change():
    found = changes.find_changes().values()
    changed = "\n".join(change.before for change in found if change.is_ordering)
    for path in changes.list_sources():
        for node in ast.walk(ast.parse(path.read_text())):
            name = isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2]
            if name and ORDERING_NAME.search(name) and name not in OTHERS:
                assert f"{name}(" in changed, (path, name)


def test_equal_changes_of_a_function_are_numbered():
    found = changes.find_changes(("_copies.py",))
    name = "_copies.py _is_channels_last: return False -> pass"
    first, second = found[name], found[f"{name} [2]"]
    assert first.text != second.text
    assert (first.before, first.after) == (second.before, second.after)


def test_the_name_of_a_change_contains_the_class_around_it():
    assert NO_DATACLASS in MARKERS
    assert NO_DATACLASS.replace("Whole", "SplitAlong") in MARKERS


def test_a_changed_file_compiles_and_differs_from_the_original():
    original = ast.unparse(ast.parse((IMPL / "_containers.py").read_text()))
    for change in MARKERS.values():
        compile(change.text, change.file, "exec")
        assert change.text != original


def test_only_the_changed_file_differs(tmp_path):
    MARKERS[NO_DATACLASS].write(tmp_path)
    package = tmp_path / "impl"
    written = {path.relative_to(package).as_posix(): path for path in package.rglob("*.py")}
    differ = {n for n, path in written.items() if path.read_text() != (IMPL / n).read_text()}
    assert (differ, len(written)) == ({"_containers.py"}, len(list(IMPL.rglob("*.py"))))


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ({"here": record([7]), "near": record([8])}, {"here"}),
        ({"far": record([1]), "elsewhere": record([7], "comm.py")}, {"far"}),
        ({"here": record([7]), "far": record([1]), "none": record()}, {"here", "none"}),
        ({"elsewhere": record([7], "comm.py"), "none": record()}, {"elsewhere", "none"}),
    ],
    ids=["the line", "the file", "tests without lines are added", "all"],
)
def test_find_tests_returns_tests_of_the_line_or_of_the_file(records, expected):
    assert ExecutedLines(records).find_tests("_chunks.py", 7) == expected


def test_impl_distributed_is_not_changed():
    names = {path.relative_to(IMPL).as_posix() for path in changes.list_sources()}
    assert {"__init__.py", "comm.py", "_devices.py"} <= names
    assert not names & {"distributed/__init__.py", "distributed/gradients.py"}


def test_tests_of_the_changed_module_come_first():
    change = next(iter(MARKERS.values()))
    own = f"impl_tests/test_{change.file.removeprefix('_')}::slow"
    lines = ExecutedLines({own: record([1]), "a": record([1])})
    assert order_tests(change, lines) == [own, "a"]
