"""The stand-ins agree with the primitives of PyPI's CUDA build."""

import datetime
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from spec_tests.cuda_stand_ins import STAND_INS
from spec_tests.cuda_stand_ins.tests.cuda_build.comparison import compare

pytestmark = pytest.mark.skipif(
    torch.version.cuda is None or "CUDA_BUILD_DEVICES" not in os.environ,
    reason="not-run: needs a CUDA build and the library of devices.c: tox -e cuda-build",
)
#: The number of compared calls of each primitive.
COUNT = 2000
#: Environment variable: the JSON file in which the numbers of calls are recorded.
RESULTS = "CUDA_BUILD_RESULTS"


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", STAND_INS)
def test_stand_in_agrees_with_the_primitive(name):
    record(name, None)  # An earlier result is not valid any longer, also if this test fails.
    record(name, compare(name, STAND_INS[name], COUNT))


def _scatter_a_clone(*arguments):
    first, *others = STAND_INS["_scatter"](*arguments)
    return [first.clone(), *others]


@pytest.mark.timeout(600)
def test_comparison_notices_a_stand_in_that_copies():
    with pytest.raises(AssertionError, match=r"\('shares_memory', "):
        compare("_scatter", _scatter_a_clone, COUNT)


def record(name, count):
    """Write the number of agreeing calls, or None, to the file of results."""
    if RESULTS in os.environ:
        path = Path(os.environ[RESULTS])
        results = json.loads(path.read_text()) if path.exists() else {}
        result = results.setdefault(torch.__version__, {})
        result["date"] = datetime.date.today().isoformat()
        result.setdefault("agreeing calls", {})[name] = count
        path.write_text(json.dumps(results, indent=2) + "\n")


@pytest.mark.parametrize(
    "call",
    [
        "_broadcast_coalesced([x], [], 100)",
        "_scatter_out(x.sum(), [x.sum()], 0, None)",
        "_scatter(x, [1], None, 0, numpy.array(1))",
    ],
)
def test_undefined_call_ends_the_process(call):
    program = f"import numpy, torch; x = torch.ones(2).to('cuda:0'); torch._C.{call}"
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert process.returncode < 0
