"""Files that users supply: any fault raises an error with one sentence that names the file."""

import json
import os

import pytest

from spec_tests.harness.conformance import clauses, register, verdicts
from spec_tests.harness.environment import target_map
from spec_tests.harness.environment.target import PARTS
from spec_tests.harness.tests import wrong_files
from spec_tests.harness.tests.fixtures import ROOT
from spec_tests.site import evidence

TEXT_FIELDS = ("id", "clause", "observed")
RECORD = {
    **dict.fromkeys(TEXT_FIELDS, "text"),
    "kind": "fix",
    "versions": "torch>=2.11",
    "tests": ["a.py::test"],
    "failures": ["E: text"],
    "threads": ["https://example.org"],
}
HEADER = {"format": 1, "target": "t", "torch": "2", "accelerator": "sim", "command": "c"}
PUBLISHED_RUN = {
    "run": {**HEADER, "date": "2026-01-01", "hardware": "sim"},
    "pass": {"comm": ["comm.a"]},
    "not-offered": {},
    "not-run": {"reason": ["comm.b"]},
    "tests": [{"clause": "comm.c", "test": "t", "verdict": "fail", "difference": "d"}],
}


def load_register(path):
    """Read a register with each function that reads registers; return the records."""
    register.titles(path)
    register.load_lacks(path, clauses.load())
    return register.load(path)


#: For each kind of file: the function that reads it, and the value of a valid file.
TOML_READERS = {
    "register": (
        load_register,
        {"inherits": "base", "lacks": ["comm"], "titles": {"X": "t"}, "repaired": []}
        | {"divergence": [RECORD]},
    ),
    "target-map": (
        lambda path: target_map.load([str(path)], PARTS),
        {"functions": {"Gather": "torch:add"}, "comm": "torch.nn.parallel.comm"},
    ),
    "clauses": (clauses.load, {"comm": {"one": {"says": "s", "basis": "law", "source": ""}}}),
}
JSON_READERS = {
    "published-run": (evidence.read_published, PUBLISHED_RUN),
    "verdicts": (verdicts.read, {"test": "t", "verdict": "fail", "clause": "a.b", "reason": "r"}),
}
READERS = {**TOML_READERS, **JSON_READERS}
#: Contents that no reader accepts.
CONTENTS = {
    "binary": bytes(range(256)),
    "invalid-utf-8": b"\xff\xfe",
    "file-of-40-MB": b" " * 40_000_000,
}
TOML_CONTENTS = {
    **CONTENTS,
    "nested-lists": b"a = " + b"[" * 100_000,
    "nested-tables": b"a = " + b"{a = " * 100_000,
    "number-of-5,000-digits": b"a = " + b"1" * 5000,
}
JSON_CONTENTS = {
    **CONTENTS,
    "nested-lists": b"[" * 100_000,
    "nested-tables": b'{"a":' * 100_000,
    "number-of-5,000-digits": b"1" * 5000,
    "half-of-a-surrogate-pair": rb'{"run": "\uD800"}',
    "list": b"[]",
}


@pytest.fixture(autouse=True)
def base_register(tmp_path, monkeypatch):
    """Write the register that the register in `TOML_READERS` inherits."""
    monkeypatch.setattr(register, "FOLDER", tmp_path / "registers")
    register.FOLDER.mkdir()
    (register.FOLDER / "base.toml").touch()


@pytest.fixture
def path(tmp_path):
    """Yield the path of a file, which is removed after the test because it may be large."""
    yield tmp_path / "file"
    (tmp_path / "file").unlink(missing_ok=True)


def find_refusal(read, path):
    """Return the text of the error that a reader raises. It is one line that names the file."""
    text = wrong_files.error_text(read, path)
    assert str(path) in text
    assert text.isprintable()
    assert len(text) < len(str(path)) + 300
    return text


@pytest.mark.parametrize("content", TOML_CONTENTS)
@pytest.mark.parametrize("reader", TOML_READERS)
def test_toml_file_with_wrong_content_is_refused(path, reader, content):
    path.write_bytes(TOML_CONTENTS[content])
    find_refusal(TOML_READERS[reader][0], path)


@pytest.mark.parametrize("content", JSON_CONTENTS)
@pytest.mark.parametrize("reader", JSON_READERS)
def test_json_file_with_wrong_content_is_refused(path, reader, content):
    path.write_bytes(JSON_CONTENTS[content])
    find_refusal(JSON_READERS[reader][0], path)


@pytest.mark.parametrize("reader", [each for each in READERS if each != "target-map"])
def test_anything_but_a_regular_file_is_refused(tmp_path, reader):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "device").symlink_to("/dev/zero")
    (tmp_path / "loop").symlink_to("loop")
    for name in ("", "pipe", "device", "loop"):
        assert "cannot be read: " in find_refusal(READERS[reader][0], tmp_path / name)


def _write(path, reader, value):
    path.write_text(wrong_files.to_text(value, toml=reader in TOML_READERS))


@pytest.mark.parametrize("reader", READERS)
def test_valid_file_is_accepted(path, reader):
    read, value = READERS[reader]
    _write(path, reader, value)
    assert read(path)


@pytest.mark.parametrize("reader", READERS)
def test_value_of_a_wrong_type_is_refused_in_every_place(path, reader):
    read, value = READERS[reader]
    for change, wrong in wrong_files.with_one_wrong_value(value):
        _write(path, reader, wrong)
        text = wrong_files.error_text(read, path)
        assert text, change
        assert wrong_files.is_short_line(text), change


@pytest.mark.parametrize("reader", READERS)
def test_refusal_of_a_hostile_text_is_one_short_line(path, reader):
    read, value = READERS[reader]
    for place, old in wrong_files.places(value):
        for text in ("\x1b[31m\n\0", "x" * 5_000) if isinstance(old, str) else ():
            _write(path, reader, wrong_files.replace(value, place, text))
            assert wrong_files.is_short_line(wrong_files.error_text(read, path)), place


@pytest.mark.parametrize("place", ["../base", "/dev/zero", "a\0b", "n" * 5000, "<script>", "own"])
def test_register_inherits_only_another_register_of_the_suite(tmp_path, place):
    (tmp_path / "base.toml").touch()
    path = register.FOLDER / "own.toml"
    path.write_text(f"inherits = {json.dumps(place)}")
    assert "the suite has no other register" in find_refusal(register.load, path)


@pytest.mark.parametrize("place", [".comm", "..", "", "../up", "a\0b", "n" * 5000, "os:\x1b[31m"])
def test_target_map_with_a_place_that_is_no_module_is_refused(path, place):
    path.write_text(f"comm = {json.dumps(place)}")
    with pytest.raises(pytest.UsageError) as caught:
        target_map.load([str(path)], PARTS)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 600


OPTIONS = ["--divergences=page.html", "--target-map=page.html", "--verdicts=page.html"]


@pytest.mark.parametrize("option", OPTIONS)
def test_run_with_a_file_of_html_prints_one_line_and_exits_with_status_4(
    tmp_path, fork_server, option
):
    (tmp_path / "page.html").write_text("<html><script>alert(1)</script></html>")
    resume = ["--", "--resume"] if "verdicts" in option else []
    arguments = ["run", "torch.nn.parallel", "--accelerator=sim", "--clause=comm.scatter.slices"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = fork_server.run(
        "spec_tests.cli.main", *arguments, option, *resume, cwd=tmp_path, env=env
    )
    assert done.returncode == 4, done.stdout + done.stderr
    (line,) = filter(None, done.stderr.splitlines())
    assert line.startswith("ERROR: page.html")
    assert "Traceback" not in done.stdout
    assert [each.name for each in tmp_path.glob("*.html")] == ["page.html"]
