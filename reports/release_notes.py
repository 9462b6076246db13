"""Print the section of CHANGELOG.md about a release, with links that work on its page.

``python -m reports.release_notes v0.1.0`` fails if the tag is not ``v`` and
``impl.__version__``, or if the section of this version has no date.
"""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def main(tag: str, root: Path = ROOT) -> None:
    """Print the notes of ``tag``; end with a message if the files do not fit the tag."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    version = _version((root / "impl" / "__init__.py").read_text(encoding="utf-8"))
    if tag != f"v{version}":
        sys.exit(f"tag {tag}, but impl.__version__ is {version}")
    changelog = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    section = _section(changelog, version)
    print(_with_absolute_links(section, f"{project['urls']['Repository']}/blob/{tag}"), end="")


def _version(source: str) -> str:
    found = re.search(r'^__version__ = "(.+)"$', source, re.M)
    if found is None:
        sys.exit("impl/__init__.py has no line __version__ = ...")
    return found[1]


def _section(changelog: str, version: str) -> str:
    """Return the lines between ``## VERSION (YYYY-MM-DD)`` and the next release."""
    heading = rf"^## {re.escape(version)} \(\d{{4}}-\d\d-\d\d\)\n"
    found = re.search(heading + r"(.*?)(?=^## |\Z)", changelog, re.M | re.S)
    if found is None:
        sys.exit(f"CHANGELOG.md has no line '## {version} (YYYY-MM-DD)'")
    return found[1].strip() + "\n"


def _with_absolute_links(text: str, base: str) -> str:
    """Return ``text`` with links to files of the repository as links to ``base``."""
    return re.sub(r"\]\((?!\w+:|#)", f"]({base}/", text)


if __name__ == "__main__":
    main(sys.argv[1])
