"""impl_tests.mutation: changes to impl, and the order of tests."""

import pytest

pytest.importorskip("cosmic_ray", reason="not-run: needs the dependency group mutation")

from impl_tests.changed_copy import IMPL
from impl_tests.mutation import changes, operators
from impl_tests.mutation.executed_lines import ExecutedLines
from impl_tests.mutation.session import take_for_seconds
from impl_tests.mutation.trials import Kills

MARKERS = changes.find_changes(("_pytree/markers.py",))
#: The name of the change that removes the decorator of the class Whole.
NO_DATACLASS = "_pytree/markers.py Whole: @dataclass(frozen=True, slots=True, eq=False) -> "
#: For a description of a change, or of unchanged code: the original code and all changed codes.
CHANGED_CODES = {
    "a statement": (
        "def f():\n a()\n b = 1",
        ["def f():\n pass\n b = 1", "def f():\n a()\n pass"],
    ),
    "a statement of several lines": ("def f():\n raise E(\n  1\n )", ["def f():\n pass"]),
    "a statement after a docstring": ('def f(): "é"; a()', ['def f(): "é"; pass']),
    "module statements stay": ("a()", []),
    "a context": ("with a, b(1) as c, d: e", ["with b(1) as c, d: e", "with a, b(1) as c: e"]),
    "the only context": ("with a(): b", ["if True: b"]),
    "finally": ("try: a\nfinally:\n b\n c", ["try: a\nfinally:\n pass"]),
    "one of two operands": ("a and b(c)", ["b(c)", "a"]),
    "one of three operands": (
        "a or b and c or d",
        ["(b and c) or d", "a or d", "a or (b and c)", "a or c or d", "a or b or d"],
    ),
    "a keyword argument": ("f(a, b=1, *c, **d)", ["f(a, *c, **d)", "f(a, *c, b=1)"]),
    "bool arguments stay": ("f(a, strict=True)", []),
    "arguments of TypeVar stay": ('T = TypeVar("T", bound=A)', []),
    "an if": ("if a: b", ["if True: b", "if False: b"]),
    "a conditional expression": ("a if b else c", ["a if True else c", "a if False else c"]),
    "a condition of while": ("while a: b", ["while True: b", "while False: b"]),
    "while True": ("while True: b", ["while False: b"]),
    "a condition of a comprehension": (
        "[a for a in b if c]",
        ["[a for a in b if True]", "[a for a in b if False]"],
    ),
}


def line_of(file, text):
    return (IMPL / file).read_text().splitlines().index(text) + 1


def record(lines=(), file="_comm/chunk_sizes.py"):
    """Return the record of a passed test that executes ``lines`` of ``file``."""
    return {"seconds": 1, "lines": {file: lines} if lines else {}}


@pytest.mark.parametrize("name", CHANGED_CODES)
def test_each_change_drops_an_element_or_fixes_a_condition(name):
    code, expected = CHANGED_CODES[name]
    assert list(operators.changed_texts(code)) == expected


def test_equal_changes_of_a_function_are_numbered():
    found = changes.find_changes(("_comm/split_cat.py",))
    name = "_comm/split_cat.py _is_channels_last: return False -> pass"
    first, second = found[name], found[f"{name} [2]"]
    assert first.text != second.text
    assert (first.before, first.after) == (second.before, second.after)


def test_the_name_of_a_change_contains_the_class_around_it():
    assert NO_DATACLASS in MARKERS
    assert NO_DATACLASS.replace("Whole", "SplitAlong") in MARKERS


def test_a_changed_file_compiles_and_differs_from_the_original():
    original = (IMPL / "_pytree/markers.py").read_text()
    for change in MARKERS.values():
        compile(change.text, change.file, "exec")
        assert change.text != original


def test_only_the_changed_file_differs(tmp_path):
    MARKERS[NO_DATACLASS].write(tmp_path)
    package = tmp_path / "impl"
    written = {path.relative_to(package).as_posix(): path for path in package.rglob("*.py")}
    differ = {n for n, path in written.items() if path.read_text() != (IMPL / n).read_text()}
    assert (differ, len(written)) == ({"_pytree/markers.py"}, len(list(IMPL.rglob("*.py"))))


def test_the_star_of_a_signature_is_not_changed_to_a_slash():
    assert not [name for name in changes.find_changes(("_comm/checks.py",)) if "/," in name]


IF = line_of("_comm/chunk_sizes.py", "    if extent == 0:")


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ({"here": record([IF]), "near": record([IF + 1])}, {"here"}),
        ({"near": record([IF + 1]), "far": record([1])}, {"near"}),
        ({"far": record([1]), "elsewhere": record([IF], "comm.py")}, {"far"}),
        ({"here": record([IF]), "far": record([1]), "none": record()}, {"here", "none"}),
    ],
    ids=["the line", "the statement around it", "the file", "tests without lines are added"],
)
def test_find_tests_returns_tests_of_the_line_or_of_code_around_it(records, expected):
    assert ExecutedLines(records).find_tests("_comm/chunk_sizes.py", IF) == expected


def test_find_tests_returns_all_tests_for_a_file_that_only_runs_at_import():
    file = "_pytree/markers.py"
    lines = ExecutedLines({"a": record([1]), "b": record()})
    assert lines.find_tests(file, line_of(file, "class Whole(Generic[T]):")) == {"a", "b"}


def test_find_tests_returns_the_tests_of_a_function_for_its_decorator():
    file = "_compat/gc_pause.py"
    line = line_of(file, "@contextmanager")
    lines = ExecutedLines({"inside": record([line + 10], file), "far": record([1])})
    assert lines.find_tests(file, line) == {"inside"}


def test_impl_distributed_is_not_changed():
    names = {path.relative_to(IMPL).as_posix() for path in changes.list_sources()}
    assert {"__init__.py", "comm.py", "_device/device.py"} <= names
    assert not names & {"distributed/__init__.py", "distributed/gradients.py"}


def test_tests_that_detected_a_nearby_change_come_first():
    lines = ExecutedLines({name: record([1]) for name in ["a", "b", "c"]})
    first, second = MARKERS[NO_DATACLASS], MARKERS[NO_DATACLASS.replace("Whole", "SplitAlong")]
    kills = Kills()
    assert kills.order_tests(first, lines) == ["a", "b", "c"]
    kills.add(second, "b")
    kills.add(first, "c")
    assert kills.order_tests(first, lines) == ["c", "b", "a"]
    assert kills.order_tests(second, lines) == ["b", "c", "a"]


def test_tests_of_the_changed_module_come_first():
    change = next(iter(MARKERS.values()))
    own = f"impl_tests/{change.file.replace('markers', 'test_markers')}::slow"
    lines = ExecutedLines({own: record([1]), "a": record([1])})
    assert Kills().order_tests(change, lines) == [own, "a"]


def test_no_test_starts_after_the_time_limit():
    assert list(take_for_seconds(0, ["a"])) == []
    assert list(take_for_seconds(60, ["a", "b"])) == ["a", "b"]
