"""The addresses of the objects of Python and PyTorch, for links in the API reference.

Sphinx downloads ``objects.inv`` of both projects. A build without network uses
``docs/inventories/NAME.inv`` if it exists; git ignores this folder. If there is no such file
either, an empty inventory is used: names of Python and PyTorch are then text without links, and
the build prints no warning.
"""

import zlib
from pathlib import Path

FOLDER = Path(__file__).parent / "inventories"
_EMPTY = Path(__file__).parent / "_build" / "empty.inv"
_ADDRESSES = {
    "python": "https://docs.python.org/3",
    "torch": "https://docs.pytorch.org/docs/stable",
}


def mapping() -> dict[str, tuple[str, tuple[str | None, str]]]:
    """Return the value of ``intersphinx_mapping``: the network first, then a local file."""
    return {
        name: (address, (None, str(_local_inventory(name))))
        for name, address in _ADDRESSES.items()
    }


def _local_inventory(name: str) -> Path:
    path = FOLDER / f"{name}.inv"
    return path if path.exists() else _write_empty()


def _write_empty() -> Path:
    _EMPTY.parent.mkdir(exist_ok=True)
    header = b"# Sphinx inventory version 2\n# Project: none\n# Version: 0\n"
    note = b"# The remainder of this file is compressed using zlib.\n"
    _EMPTY.write_bytes(header + note + zlib.compress(b""))
    return _EMPTY
