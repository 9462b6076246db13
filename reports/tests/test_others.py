"""The list of other implementations and the handling of their verdicts. Nothing is installed."""

import importlib
import json
import subprocess
import sys
import zipfile

import pytest
import torch

from reports.others import catalogue, environments, validation, wheels
from spec_tests.machine import register, verdict_file
from spec_tests.machine.target import PARTS, map_pairs
from spec_tests.reporting import runs
from spec_tests.reporting.evidence import publish

KNOWN = catalogue.load()


@pytest.mark.parametrize(
    "name", [name for name, each in KNOWN.items() if not (each.facts or each.wheel)]
)
def test_every_implementation_has_a_register_of_known_failures(name):
    assert register.path_of(KNOWN[name].target, None)


@pytest.mark.parametrize("name", [name for name, each in KNOWN.items() if each.target_map_file])
def test_every_map_uses_only_submodules_of_torch_nn_parallel(name):
    pairs = dict(map_pairs(str(KNOWN[name].target_map_file)))
    assert {key.partition(".")[0] for key in pairs} <= set(PARTS)


def test_every_map_belongs_to_an_implementation():
    assert {path.stem for path in (catalogue.HERE / "maps").glob("*")} <= set(KNOWN)


def verdict_line(verdict, clause="comm.scatter.slices"):
    """Return a test with its verdict, as in a file of verdicts."""
    return {"clause": clause, "test": "t.py::test", "verdict": verdict}


HEADER = {"format": 2, **dict.fromkeys(("target", "torch", "accelerator", "command", "date"), "x")}


def find_unexpected(tmp_path, lines, status=0):
    """Return the verdicts that differ from the records, for a file with these lines."""
    file = tmp_path / "verdicts.jsonl"
    file.write_text("".join(f"{json.dumps(each)}\n" for each in [{"run": HEADER}, *lines]))
    return list(validation.find_unexpected(file, status))


def test_verdicts_known_pass_and_declared_not_offered_are_expected(tmp_path):
    not_offered = verdict_line("not-offered", "comm.gather.joined") | {"declared": "comm.gather"}
    lines = [verdict_line("known"), verdict_line("pass", "comm.reduce-add.sum"), not_offered]
    assert find_unexpected(tmp_path, lines) == []


@pytest.mark.parametrize(
    ("lines", "status", "expected"),
    [
        ([verdict_line("fail")], 1, ["fail comm.scatter.slices", "exit status 1"]),
        ([verdict_line("not-offered")], 6, ["not-offered comm.scatter.slices", "exit status 6"]),
        ([], 0, ["no verdict of any clause"]),
    ],
    ids=["fail", "not-offered-and-not-declared", "no-verdicts"],
)
def test_unexpected_verdicts_are_found(tmp_path, lines, status, expected):
    assert find_unexpected(tmp_path, lines, status) == expected


def test_a_package_imports_its_own_modules_and_those_of_pytorch(tmp_path, monkeypatch):
    def download(version, tags, folder):
        with zipfile.ZipFile(f"{folder}/torch-{version}.whl", "w") as wheel:
            wheel.writestr(
                "torch/cuda/comm.py", "from . import Event\nfrom ._utils import torch\n"
            )
            for name in ("_functions", "replicate", "scatter_gather"):
                wheel.writestr(f"torch/nn/parallel/{name}.py", "import torch.cuda.comm as comm\n")
            wheel.writestr("torch/nn/parallel/parallel_apply.py", "from ... import ones\n")
            text = "from ..modules import Module\nfrom .replicate import comm\n"
            wheel.writestr("torch/nn/parallel/data_parallel.py", text)

    monkeypatch.setattr(wheels, "_download", download)
    monkeypatch.setattr(wheels, "_INIT", "")
    monkeypatch.syspath_prepend(tmp_path)
    wheels.unpack("0.9.1", {}, tmp_path)
    wrapper = importlib.import_module("parallel_0_9_1.data_parallel")
    assert wrapper.Module is torch.nn.Module
    assert wrapper.comm.Event is torch.cuda.Event
    assert importlib.import_module("parallel_0_9_1.parallel_apply").ones is torch.ones


def test_a_run_of_a_wheel_keeps_no_text_and_is_compared_with_the_published_run(tmp_path):
    found = {"kind": "error", "facts": [["error", "ValueError"]], "text": "a text"}
    failure = verdict_line("fail") | {"failure": found}
    stale = verdict_line("fail", "comm.gather.joined") | {"failure": {"kind": "stale-record"}}
    file, published = tmp_path / "verdicts.jsonl", tmp_path / "published.json"
    header = {"run": dict.fromkeys(("target", "torch", "accelerator", "command", "date"), "-")}
    header["run"]["format"] = verdict_file.FORMAT
    file.write_text("".join(f"{json.dumps(each)}\n" for each in [header, failure, stale]))
    validation._simplify(file)
    assert "a text" not in file.read_text()
    about, evidence = runs.read(file)
    assert evidence["comm.gather.joined"].verdict == "pass"
    published.write_text(publish(about, evidence))
    assert list(validation.find_changed(file, published)) == []
    file.write_text("".join(f"{json.dumps(each)}\n" for each in [header, verdict_line("pass")]))
    changed = ["pass comm.scatter.slices, published as fail"]
    assert list(validation.find_changed(file, published)) == changed


def test_cuda_libraries_and_triton_are_not_installed():
    needs = ["filelock", "cuda-toolkit[cublas]==13", "nvidia-cudnn-cu13==9", "triton==3", "sympy"]
    assert [need for need in needs if not environments.CUDA.search(need)] == ["filelock", "sympy"]


def test_unknown_name_on_the_command_line_is_refused(tmp_path):
    command = [sys.executable, "-m", "reports.others", "nonesuch", "--home", str(tmp_path)]
    done = subprocess.run(command, cwd=catalogue.ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "there is no nonesuch; there are torch-2.11.0, " in done.stderr
