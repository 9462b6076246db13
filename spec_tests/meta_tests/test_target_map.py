"""A target whose parts have other names, or are not all there."""

import os
import shutil
from pathlib import Path

import pytest

from spec_tests.harness.environment import target_map
from spec_tests.harness.environment.target import PARTS, NotOffered, Target

ROOT = Path(__file__).resolve().parents[2]
#: Parts under other names, two of them wrong: chunks in reverse, gather along another dimension.
VENDOR = """
from torch.nn.parallel import comm
right = comm.broadcast
def cut(*args, **kwargs):
    return tuple(comm.scatter(*args, **kwargs))[::-1]
def join(tensors, dim=0, destination=None, *, out=None):
    return comm.gather(tensors[::-1], dim, destination, out=out)
"""
MAP = """
[comm]
broadcast = "vendor.parts:right"
scatter = "vendor.parts:cut"
gather = "vendor.parts:join"
"""
CLAUSES = {
    "comm.scatter.slices": "fail",
    "comm.gather.joined": "fail",
    "comm.broadcast.copies": "pass",
    "comm.reduce-add.sum": "not-offered",
}


@pytest.fixture
def vendor(tmp_path, monkeypatch):
    """A package that is not laid out like torch.nn.parallel."""
    package = tmp_path / "vendor"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "parts.py").write_text(VENDOR)
    (tmp_path / "map.toml").write_text(MAP)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@pytest.fixture
def judge(fork_server):
    """Run the command on a package in ``folder``, by the map there."""

    def run(folder, *clauses, target="vendor", options=()):
        names = [f"--clause={name}" for name in clauses]
        command = ["run", target, "--accelerator=sim", "--target-map=map.toml"]
        command += [*options, *names]
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        return fork_server.run("spec_tests.cli.main", *command, cwd=folder, env=env)

    return run


def test_two_bugs_behind_a_map_are_the_two_failures(judge, tmp_path):
    shutil.copytree(Path(__file__).with_name("renamed_target"), tmp_path, dirs_exist_ok=True)
    done = judge(tmp_path, "comm.gather", "comm.reduce-add", target="own")
    assert done.returncode == 1, done.stdout + done.stderr
    found = [line.split() for line in done.stdout.splitlines() if "  comm." in line]
    assert [words for words in found if len(words) == 2 and words[0] != "FAIL"] == [
        ["fail", "comm.gather.minus-one-is-the-cpu"],
        ["fail", "comm.reduce-add.refuses-other-shapes"],
    ]


def test_verdicts_are_those_of_what_the_map_names(judge, vendor):
    done = judge(vendor, *CLAUSES)
    assert done.returncode == 1, done.stdout + done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    red = {name: verdict for verdict, name in (line for line in lines if len(line) == 2)}
    assert {name: red.get(name, "pass") for name in CLAUSES} == CLAUSES
    assert "--target-map=map.toml --clause=" in done.stdout


def test_a_target_that_lacks_something_but_errs_nowhere_ends_with_six(judge, vendor):
    done = judge(vendor, "comm.broadcast.copies", "comm.reduce-add.sum")
    assert done.returncode == 6, done.stdout + done.stderr


def test_a_target_that_declares_what_it_lacks_ends_with_zero(judge, vendor):
    (vendor / "own.toml").write_text('lacks = ["comm.reduce-add.sum"]')
    names = "comm.broadcast.copies", "comm.reduce-add.sum"
    done = judge(vendor, *names, options=["--divergences=own.toml"])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "as the register declares: 1 clause (comm.reduce-add.sum)" in done.stdout


def test_a_declaration_of_what_is_offered_ends_with_one(judge, vendor):
    (vendor / "own.toml").write_text('lacks = ["comm.broadcast.copies", "comm.reduce-add.sum"]')
    names = "comm.broadcast.copies", "comm.reduce-add.sum"
    done = judge(vendor, *names, options=["--divergences=own.toml"])
    assert done.returncode == 1, done.stdout + done.stderr
    assert '"comm.broadcast.copies" as lacking, but the target offers it' in done.stdout


def test_what_a_package_warns_of_while_it_is_imported_is_its_own_affair(judge, vendor):
    parts = vendor / "vendor" / "parts.py"
    parts.write_text(f"import warnings\nwarnings.warn('an old package', UserWarning)\n{VENDOR}")
    done = judge(vendor, "comm.broadcast.copies")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_map_names_parts_and_names_in_parts(vendor):
    options = ["comm=torch.nn.parallel.comm", "functions.Gather=vendor.parts:join"]
    target = Target("vendor", target_map.load(options, PARTS))
    assert callable(target.comm.scatter)
    assert target.functions.Gather.__name__ == "join"
    with pytest.raises(NotOffered, match=r"does not define comm\.nonesuch"):
        _ = target.comm.nonesuch
    with pytest.raises(NotOffered, match=r"does not define functions\.Scatter"):
        _ = target.functions.Scatter
    with pytest.raises(NotOffered, match="has no submodule replicate"):
        _ = target.replicate.replicate
    with pytest.raises(NotOffered, match="has no submodule _functions"):
        target.submodule("_functions")


def test_a_later_option_overrides_the_file(vendor):
    options = [str(vendor / "map.toml"), "comm.scatter=torch.nn.parallel.comm:scatter"]
    found = target_map.load(options, PARTS)
    assert found["comm.scatter"] == "torch.nn.parallel.comm:scatter"
    assert found["comm.gather"] == "vendor.parts:join"


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("comm", "neither NAME=PLACE nor a file"),
        ("com.scatter=vendor.parts:cut", "unknown part; the parts are comm, "),
        ("comm.scatter=vendor.nonesuch:cut", "No module named"),
        ("comm.scatter=vendor.parts:nonesuch", "has no attribute"),
        ("comm.scatter=", "Empty module name"),
    ],
)
def test_a_map_that_leads_nowhere_is_refused(vendor, option, text):
    with pytest.raises(pytest.UsageError, match=text):
        target_map.load([option], PARTS)
