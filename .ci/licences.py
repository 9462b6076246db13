"""Check ``licences.md``, the licences of the packages in ``gate.txt``; write it with ``--write``.

``tox -e all`` runs it, in an environment with these packages. Python releases may get other
releases of a package, so that only Python 3.11 on Linux checks the file.
"""

import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE / "licences.md"
INTRODUCTION = """# Licences of the packages in gate.txt

Written by `tox exec -e all -- python .ci/licences.py --write`. The wheel contains none of these
packages. impl itself needs only torch, which is not locked; its wheel contains its licences.

"""


def main(arguments: list[str]) -> None:
    """Compare the page with the installed packages, or write it."""
    if sys.version_info[:2] != (3, 11) or sys.platform != "linux":
        print("licences: not checked; this is not Python 3.11 on Linux")
        return
    page = INTRODUCTION + _table()
    if arguments == ["--write"]:
        PAGE.write_text(page, encoding="utf-8")
    elif not PAGE.exists() or PAGE.read_text(encoding="utf-8") != page:
        sys.exit(".ci/licences.md is stale; its first lines name the command that writes it")


def _table() -> str:
    names = re.findall(r"^([\w.-]+)==", (HERE / "gate.txt").read_text(encoding="utf-8"), re.M)
    command = ["-m", "piplicenses", "--from=mixed", "--format=markdown", "--no-version"]
    command += ["--with-system", "--packages", *names]
    return subprocess.run(
        [sys.executable, *command], check=True, text=True, stdout=subprocess.PIPE
    ).stdout


if __name__ == "__main__":
    main(sys.argv[1:])
