"""The list of other implementations and the handling of their verdicts. Nothing is installed."""

import importlib
import json
import subprocess
import sys
import zipfile

import pytest
import torch

from reports.others import catalogue, environments, validation, wheels
from spec_tests.machine import register
from spec_tests.machine.target import PARTS, map_pairs

KNOWN = catalogue.load()
INSTALLED = [each for each in KNOWN.values() if not (each.facts or each.wheel)]
MAPS = [*(catalogue.HERE / "maps").glob("*.toml")]


@pytest.mark.parametrize("target", sorted({each.target for each in INSTALLED} - {"impl"}))
def test_every_implementation_has_a_register_of_known_failures(target):
    assert register.path_of(target, None)


@pytest.mark.parametrize("path", MAPS, ids=[path.stem for path in MAPS])
def test_every_map_uses_only_submodules_of_torch_nn_parallel(path):
    option = f"--target-map={path.relative_to(catalogue.ROOT).as_posix()}"
    assert option in KNOWN[path.stem].options
    assert {key.partition(".")[0] for key, _ in map_pairs(str(path))} <= set(PARTS)


ONE = "comm.scatter.slices"


def line_of(verdict, clause=ONE, **fields):
    """Return a test with its verdict, as in a file of verdicts."""
    return {"clause": clause, "test": "t.py::test", "verdict": verdict, **fields}


HEADER = {"format": 2, **dict.fromkeys(("target", "torch", "accelerator", "command", "date"), "x")}
DECLARED = line_of("not-offered", "comm.gather.joined", declared="comm.gather")
#: Lines of a file of verdicts, the exit status, the published verdicts, and what is unexpected.
RUNS = {
    "recorded": ([line_of("known"), line_of("pass", "comm.no-memory"), DECLARED], 0, None, []),
    "failed": ([line_of("fail")], 1, None, [f"fail {ONE}", "exit status 1"]),
    "missing": ([line_of("not-offered")], 6, None, [f"not-offered {ONE}", "exit status 6"]),
    "empty": ([], 0, None, ["no verdict of any clause"]),
    "interrupted": ([], 2, None, ["the run did not end: exit status 2"]),
    "as published": ([line_of("fail")], 1, {ONE: "fail"}, []),
    "changed": ([line_of("pass")], 0, {ONE: "fail"}, [f"pass {ONE}, published as fail"]),
}


@pytest.mark.parametrize(("lines", "status", "record", "expected"), RUNS.values(), ids=RUNS)
def test_unexpected_verdicts_are_found(tmp_path, lines, status, record, expected):
    file = tmp_path / "verdicts.jsonl"
    file.write_text("".join(f"{json.dumps(each)}\n" for each in [{"run": HEADER}, *lines]))
    assert list(validation.find_unexpected(file, status, record)) == expected


def test_verdicts_of_a_wheel_keep_no_text_and_pass_in_spite_of_a_record():
    error = {"kind": "error", "facts": [["error", "ValueError"]], "text": "a line", "call": "f()"}
    kept = validation.without_text(line_of("fail", failure=error))["failure"]
    assert kept == {"kind": "error", "facts": [["error", "ValueError"]], "text": "error"}
    stale = line_of("fail", failure={"kind": "stale-record"})
    assert validation.without_text(stale)["verdict"] == "pass"


def test_a_package_imports_its_own_modules_and_those_of_pytorch(tmp_path, monkeypatch):
    texts = dict.fromkeys(wheels.MODULES, "import torch.cuda.comm as comm\n")
    texts["parallel_apply"] = "from ... import ones\nfrom torch.nn.parallel import comm\n"
    texts["data_parallel"] = "from ..modules import Module\nfrom .replicate import comm\n"
    with zipfile.ZipFile(tmp_path / "torch.whl", "w") as file:
        file.writestr("torch/cuda/comm.py", "from . import Event\nfrom ._utils import torch\n")
        for name in wheels.MODULES[1:]:
            file.writestr(f"torch/nn/parallel/{name}.py", texts[name])
    monkeypatch.setattr(wheels, "_INIT", "")
    monkeypatch.syspath_prepend(tmp_path)
    wheels.Wheel("0.9.1", "", "").write_package(tmp_path / "torch.whl", tmp_path)
    wrapper = importlib.import_module("parallel_0_9_1.data_parallel")
    apply = importlib.import_module("parallel_0_9_1.parallel_apply")
    assert wrapper.Module is torch.nn.Module
    assert wrapper.comm.Event is torch.cuda.Event
    assert apply.ones is torch.ones
    assert apply.comm is wrapper.comm


def test_cuda_libraries_and_triton_are_not_installed():
    needs = ["filelock", "cuda-toolkit[cublas]==13", "nvidia-cudnn-cu13==9", "triton==3"]
    skipped = [*filter(environments.NOT_INSTALLED.search, [*needs, 'optree; extra == "optree"'])]
    assert skipped == [*needs[1:], 'optree; extra == "optree"']


def test_unknown_name_on_the_command_line_is_refused(tmp_path):
    command = [sys.executable, "-m", "reports.others", "nonesuch", "--home", str(tmp_path)]
    done = subprocess.run(command, cwd=catalogue.ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "there is no nonesuch; there are impl-torch-2.13.0, " in done.stderr
