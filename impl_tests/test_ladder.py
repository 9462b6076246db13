"""impl/README.md: every module has its rung, and stands on lower ones only."""

import ast
import re
from pathlib import Path

import pytest

IMPL = Path(__file__).resolve().parents[1] / "impl"
RUNGS = re.findall(r"^\| \*{0,2}`(\w+)\.py`", (IMPL / "README.md").read_text(), re.MULTILINE)


def imported(name):
    """Name the modules of impl that one of them imports."""
    for node in ast.walk(ast.parse((IMPL / f"{name}.py").read_text())):
        if isinstance(node, ast.ImportFrom) and node.level == 1:
            yield from [node.module] if node.module else [alias.name for alias in node.names]


def test_every_module_has_one_rung():
    modules = {path.stem for path in IMPL.glob("*.py")} - {"__init__"}
    assert sorted(RUNGS) == sorted(modules)


@pytest.mark.parametrize("rung", RUNGS)
def test_a_module_stands_on_lower_rungs_only(rung):
    lower = RUNGS[: RUNGS.index(rung)]
    assert not [name for name in imported(rung) if name not in lower]
