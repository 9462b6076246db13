"""impl_tests.long_checks runs its parts, and names the commands that fail."""

import importlib.util
from pathlib import Path

import pytest

from impl_tests.long_checks import __main__ as long_checks

ROOT = Path(long_checks.__file__).parents[2]
PARTS = {
    "first": [("platform",), ("impl_tests.no_module",)],
    "second": [("platform", "--terse")],
}


def run(monkeypatch, *arguments):
    monkeypatch.setattr(long_checks, "PARTS", PARTS)
    monkeypatch.setattr("sys.argv", ["long", *arguments])
    return long_checks.main()


def test_all_parts_run_after_a_failure_and_the_failed_command_is_named(monkeypatch, capsys):
    assert run(monkeypatch) == 1
    printed = capsys.readouterr().out.splitlines()
    assert [line for line in printed if line.startswith("$")] == [
        "$ python -m platform",
        "$ python -m impl_tests.no_module",
        "$ python -m platform --terse",
    ]
    assert printed[-2:] == ["failed:", "first: python -m impl_tests.no_module"]


def test_the_words_after_a_part_are_arguments_of_its_first_command(monkeypatch, capsys):
    assert run(monkeypatch, "second", "nonaliased") == 0
    assert "$ python -m platform --terse nonaliased" in capsys.readouterr().out


@pytest.mark.parametrize("part", long_checks.PARTS)
def test_modules_and_files_of_the_commands_exist(part):
    for module, *arguments in long_checks.PARTS[part]:
        assert importlib.util.find_spec(module) is not None
        paths = [word for word in arguments if "/" in word and not word.startswith(("-", "/"))]
        assert [word for word in paths if not (ROOT / word).exists()] == []
