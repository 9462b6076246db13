"""Build wheel and sdist again from the unpacked sdist; fail if a byte differs.

Usage: ``rebuild.py FOLDER``. Wheel and sdist of the checkout are in ``FOLDER/dist``. The second
build runs in another folder and later, on files with other dates and other permissions.
"""

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

#: Date of every file of the second build, in seconds since 1970. The first build has other dates.
DATE = 1_000_000_000


def main(folder: Path) -> None:
    """Build in ``FOLDER/again``, then compare ``FOLDER/dist`` with ``FOLDER/again/dist``."""
    again = folder / "again"
    shutil.rmtree(again, ignore_errors=True)
    (sdist,) = (folder / "dist").glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(again, filter="data")
    source = again / sdist.name.removesuffix(".tar.gz")
    for file in source.rglob("*"):
        file.chmod(file.stat().st_mode & 0o700)
        os.utime(file, (DATE, DATE))
    command = [sys.executable, "-m", "build", "--outdir", again / "dist", source]
    subprocess.run(command, check=True)
    first, second = (_read_files(place / "dist") for place in (folder, again))
    if different := sorted(
        name for name in {*first, *second} if first.get(name) != second.get(name)
    ):
        sys.exit(f"the second build differs: {', '.join(different)}")
    print("the second build has the same bytes:", *sorted(first))


def _read_files(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
