"""Targets that cannot be imported: the run ends before its first test, with one sentence."""

from fnmatch import fnmatch

import pytest

pytestmark = pytest.mark.machinery


@pytest.fixture
def run(tmp_path, run_command):
    """Return a function that writes the modules of a package ``mine`` and runs a clause on it."""

    def call(files, *options, target="mine"):
        (tmp_path / "mine").mkdir()
        for name, text in files.items():
            (tmp_path / "mine" / f"{name}.py").write_text(text)
        clause = "--clause=comm.scatter.slices"
        return run_command("run", target, "--accelerator=sim", clause, *options)

    return call


@pytest.mark.parametrize(
    ("files", "text"),
    [
        ({"other": ""}, "has none of the submodules comm, functions, *"),
        (
            {"replicate": "a = 1\nb = = 2"},
            "cannot be imported: SyntaxError: invalid syntax (*replicate.py, line 2)",
        ),
        (
            {"comm": "\nimport no_such_name"},
            "cannot be imported: ModuleNotFoundError: "
            "No module named 'no_such_name' (*comm.py, line 2)",
        ),
        (
            {"comm": "import os\nos._exit(0)"},
            "cannot be imported: SystemExit: os._exit(0) (*comm.py, line 2)",
        ),
    ],
)
def test_a_target_that_cannot_be_imported_ends_the_run(run, files, text):
    done = run(files)
    assert done.returncode == 4, done.stdout + done.stderr
    (line,) = done.stderr.strip().splitlines()
    assert fnmatch(line, f"ERROR: the target mine {text}")
    assert done.stdout == "importing PyTorch ...\n"


def test_a_mapped_name_is_a_part(run):
    place = "--target-map=comm.scatter=torch.nn.parallel.comm:scatter"
    done = run({"other": ""}, place)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_mapped_module_with_an_error_ends_the_run(run):
    done = run({"other": "b = = 2"}, "--target-map=comm=mine.other")
    assert done.returncode == 4, done.stdout + done.stderr
    assert "SyntaxError: invalid syntax" in done.stderr


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("./mine", "is no module name"),
        ("other.part", "cannot be imported: no module named 'other'"),
    ],
)
def test_a_path_or_a_missing_package_is_no_target(run, target, text):
    done = run({"comm": ""}, target=target)
    assert done.returncode == 4
    assert f"the target {target} {text}" in done.stderr
