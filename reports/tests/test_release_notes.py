"""Tests of reports.release_notes."""

import pytest

from reports import release_notes

PROJECT = """[project.urls]
Repository = "https://example.org/r"
"""
VERSION = '__version__ = "0.2.0"\n'
CHANGELOG = """# Changelog

## 0.2.0 (2026-11-23)

### Added

* A page, [here](docs/page.md#part), and [a thread](https://example.com/1).

## 0.1.0 (2026-10-01)

* The first release.
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    (tmp_path / "impl").mkdir()
    (tmp_path / "impl" / "__init__.py").write_text(VERSION)
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
    return tmp_path


def test_notes_are_the_section_of_the_release_with_absolute_links(folder, capsys):
    release_notes.main("v0.2.0", folder)
    assert capsys.readouterr().out == (
        "### Added\n\n* A page, [here](https://example.org/r/blob/v0.2.0/docs/page.md#part), "
        "and [a thread](https://example.com/1).\n"
    )


def test_notes_of_the_last_section_end_with_the_file(folder, capsys):
    (folder / "impl" / "__init__.py").write_text(VERSION.replace("0.2.0", "0.1.0"))
    release_notes.main("v0.1.0", folder)
    assert capsys.readouterr().out == "* The first release.\n"


def test_tag_of_another_version_is_refused(folder):
    with pytest.raises(SystemExit, match=r"tag v0.3.0, but impl.__version__ is 0.2.0"):
        release_notes.main("v0.3.0", folder)


def test_release_without_date_is_refused(folder):
    (folder / "CHANGELOG.md").write_text(CHANGELOG.replace("2026-11-23", "unreleased"))
    with pytest.raises(SystemExit, match=r"no line '## 0.2.0 \(YYYY-MM-DD\)'"):
        release_notes.main("v0.2.0", folder)
