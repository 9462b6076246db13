"""The automatic changes to impl: which there are, which tests try them, which are excused."""

import dataclasses
import itertools

import pytest

pytest.importorskip("cosmic_ray", reason="not-run: needs the dependency group mutation")

from impl_tests.mutants import IMPL
from impl_tests.mutation import changes, drops, equivalent, verdicts
from impl_tests.mutation.lines import Lines
from impl_tests.mutation.session import within
from impl_tests.mutation.trials import Kills

MARKERS = changes.changes(("_pytree/markers.py",))
THAWED = "_pytree/markers.py Whole: @dataclass(frozen=True, slots=True, eq=False) -> "
RECORD = """
[[equivalent]]
file = "_pytree/markers.py"
place = "Whole"
before = "@dataclass(frozen=True, slots=True, eq=False)"
after = "{}"
reason = "for this test"
"""
ALIKE = """
[[equivalent]]
file = "_comm/split_cat.py"
place = "_is_channels_last"
before = "return False"
after = "pass"
nth = 2
reason = "for this test"
"""
DROPPED = {
    "a step": ("def f():\n a()\n b = 1", ["def f():\n pass\n b = 1", "def f():\n a()\n pass"]),
    "a step of several lines": ("def f():\n raise E(\n  1\n )", ["def f():\n pass"]),
    "a step after a text": ('def f(): "é"; a()', ['def f(): "é"; pass']),
    "no step of a module": ("a()", []),
    "a context": ("with a, b(1) as c, d: e", ["with b(1) as c, d: e", "with a, b(1) as c: e"]),
    "the only context": ("with a(): b", ["if True: b"]),
    "the end": ("try: a\nfinally:\n b\n c", ["try: a\nfinally:\n pass"]),
    "an operand of two": ("a and b(c)", ["b(c)", "a"]),
    "an operand of three": (
        "a or b and c or d",
        ["(b and c) or d", "a or d", "a or (b and c)", "a or c or d", "a or b or d"],
    ),
    "a keyword": ("f(a, b=1, *c, **d)", ["f(a, *c, **d)", "f(a, *c, b=1)"]),
    "no switch": ("f(a, strict=True)", []),
    "no bound of a type": ('T = TypeVar("T", bound=A)', []),
    "an if": ("if a: b", ["if True: b", "if False: b"]),
    "a conditional expression": ("a if b else c", ["a if True else c", "a if False else c"]),
    "a loop's condition": ("while a: b", ["while True: b", "while False: b"]),
    "a loop without end": ("while True: b", ["while False: b"]),
    "a filter": ("[a for a in b if c]", ["[a for a in b if True]", "[a for a in b if False]"]),
}


def line_of(file, text):
    return (IMPL / file).read_text().splitlines().index(text) + 1


def record(**lines):
    return {
        "seconds": 1,
        "lines": lines and {"_comm/chunk_sizes.py": lines["at"]},
        "failed": False,
    }


@pytest.mark.parametrize("name", DROPPED)
def test_one_thing_is_dropped_or_fixed_at_a_time(name):
    code, expected = DROPPED[name]
    assert list(drops.texts(code)) == expected


def test_changes_that_read_alike_are_told_apart():
    found = changes.changes(("_comm/split_cat.py",))
    (name,) = equivalent.load(found, ALIKE)
    first = found[name.removesuffix(" [2]")]
    assert first.text != found[name].text
    assert (first.before, first.after) == (found[name].before, found[name].after)


def test_a_change_names_its_place():
    assert THAWED in MARKERS
    assert THAWED.replace("Whole", "SplitAlong") in MARKERS


def test_a_changed_file_is_python_and_no_longer_as_it_was():
    original = (IMPL / "_pytree/markers.py").read_text()
    for change in MARKERS.values():
        compile(change.text, change.file, "exec")
        assert change.text != original


def test_only_the_changed_file_differs(tmp_path):
    MARKERS[THAWED].write(tmp_path)
    home = tmp_path / "impl"
    written = {path.relative_to(home).as_posix(): path for path in home.rglob("*.py")}
    differ = {n for n, path in written.items() if path.read_text() != (IMPL / n).read_text()}
    assert (differ, len(written)) == ({"_pytree/markers.py"}, len(list(IMPL.rglob("*.py"))))


def test_star_and_slash_of_a_signature_are_left_alone():
    assert not [name for name in changes.changes(("_comm/checks.py",)) if "/," in name]


def test_an_excused_change_is_found():
    assert list(equivalent.load(MARKERS, RECORD.format(""))) == [THAWED]


@pytest.mark.parametrize(
    "text", [RECORD.format("x"), RECORD.format("") * 2], ids=["no such change", "twice"]
)
def test_a_stale_record_is_refused(text):
    with pytest.raises(ValueError, match="Whole"):
        equivalent.load(MARKERS, text)


@pytest.mark.parametrize("reason", ["", 'reason = ""', 'reason = " "'], ids=repr)
def test_a_record_without_a_reason_is_refused(reason):
    with pytest.raises(ValueError, match="no reason for _pytree/markers"):
        equivalent.load(MARKERS, RECORD.format("").replace('reason = "for this test"', reason))


def test_no_record_is_stale():
    assert equivalent.load(changes.changes())


def test_a_line_is_tried_by_the_tests_that_execute_it():
    line = line_of("_comm/chunk_sizes.py", "    if extent == 0:")
    lines = Lines({"here": record(at=[line]), "near": record(at=[line + 1])})
    assert lines.tests("_comm/chunk_sizes.py", line) == {"here"}


def test_a_function_that_is_not_executed_is_tried_by_all_tests_that_might():
    line = line_of("_comm/chunk_sizes.py", "    if extent == 0:")
    lines = Lines({"far": record(at=[1]), "elsewhere": {**record(), "lines": {"comm.py": [line]}}})
    near = Lines({"near": record(at=[line + 1]), "far": record(at=[1])})
    assert lines.tests("_comm/chunk_sizes.py", line) == {"far"}
    assert near.tests("_comm/chunk_sizes.py", line) == {"near"}


def test_tests_that_are_not_seen_to_execute_anything_try_every_line():
    line = line_of("_comm/chunk_sizes.py", "    if extent == 0:")
    lines = Lines({"here": record(at=[line]), "far": record(at=[1]), "unseen": record()})
    assert lines.tests("_comm/chunk_sizes.py", line) == {"here", "unseen"}


def test_a_file_that_runs_at_import_only_is_tried_by_all_tests():
    lines = Lines({"a": record(at=[1]), "b": record()})
    assert lines.tests(
        "_pytree/markers.py", line_of("_pytree/markers.py", "class Whole(Generic[T]):")
    ) == {
        "a",
        "b",
    }


def test_a_decorator_is_tried_by_the_tests_of_what_it_decorates():
    line = line_of("_compat/gc_pause.py", "@contextmanager")
    inside = {**record(), "lines": {"_compat/gc_pause.py": [line + 10]}}
    assert Lines({"it": inside, "far": record(at=[1])}).tests("_compat/gc_pause.py", line) == {
        "it"
    }


def test_what_only_the_processes_of_a_group_run_is_not_changed():
    names = {path.relative_to(IMPL).as_posix() for path in changes.sources()}
    assert {"__init__.py", "comm.py", "_device/device.py"} <= names
    assert not names & {"distributed/__init__.py", "distributed/gradients.py"}


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """A record that says of two changes what noticed them: a test, and the import."""
    monkeypatch.setattr(verdicts, "ROOT", tmp_path)
    (tmp_path / "a.py").write_text("as it was")
    path = tmp_path / "noticed.json"
    first, second = itertools.islice(MARKERS.values(), 2)
    verdicts.keep(path, first, "a.py::test")
    verdicts.keep(path, second, "its import")
    return path


def test_what_was_noticed_is_not_tried_again(kept):
    first, second, *_ = MARKERS.values()
    found = verdicts.load(kept, MARKERS.values(), tests={"a.py::test"})
    assert found == {first: "a.py::test", second: "its import"}


def test_a_verdict_of_a_test_that_is_gone_is_not_taken(kept):
    _, second, *_ = MARKERS.values()
    assert verdicts.load(kept, MARKERS.values(), tests={}) == {second: "its import"}


def test_a_verdict_of_a_test_whose_file_has_changed_is_not_taken(kept):
    first, second, third, *_ = MARKERS.values()
    (kept.parent / "a.py").write_text("as it is")
    assert [*verdicts.load(kept, MARKERS.values(), tests={"a.py::test"})] == [second]
    verdicts.keep(kept, third, "a.py::test")
    assert first not in verdicts.load(kept, MARKERS.values(), tests={"a.py::test"})


def test_a_test_whose_file_has_changed_is_likely_to_notice_the_same_again(kept):
    first, *_ = MARKERS.values()
    (kept.parent / "a.py").write_text("as it is")
    found = verdicts.load_likely(kept, MARKERS.values(), tests={"a.py::test"})
    assert found == {first: "a.py::test"}
    assert verdicts.load_likely(kept, MARKERS.values(), tests={}) == {}


def test_a_verdict_on_another_text_of_the_file_is_not_taken(kept):
    change = next(iter(MARKERS.values()))
    other = dataclasses.replace(change, text=change.text + "#")
    assert not verdicts.load(kept, [other], tests={"a.py::test"})


def test_what_is_about_no_change_is_forgotten(kept):
    first, second, *_ = MARKERS.values()
    verdicts.forget_all_but(kept, [second])
    assert verdicts.load(kept, [first, second], tests={"a.py::test"}) == {second: "its import"}
    assert "a.py" not in kept.read_text()


def test_there_need_be_no_record(tmp_path):
    assert verdicts.load(tmp_path / "none", MARKERS.values(), tests={}) == {}


def test_what_has_noticed_a_change_of_the_function_comes_first():
    lines = Lines({name: record(at=[1]) for name in ["a", "b", "c"]})
    thawed, other = MARKERS[THAWED], MARKERS[THAWED.replace("Whole", "SplitAlong")]
    kills = Kills()
    assert kills.order(thawed, lines) == ["a", "b", "c"]
    kills.add(other, "b")
    kills.add(thawed, "c")
    assert kills.order(thawed, lines) == ["c", "b", "a"]
    assert kills.order(other, lines) == ["b", "c", "a"]


def test_no_test_is_begun_after_the_seconds_of_a_change():
    assert list(within(0, ["a"])) == []
    assert list(within(60, ["a", "b"])) == ["a", "b"]


def test_a_test_that_fails_under_coverage_is_left_out():
    lines = Lines({"bad": {**record(at=[1]), "failed": True}})
    assert (lines.left_out, lines.seconds) == ({"bad"}, {})
