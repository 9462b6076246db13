"""Targets with other or missing names (``--target-map``), or that cannot be imported."""

from fnmatch import fnmatch

import pytest

from spec_tests.machine import verdict_file, verdicts
from spec_tests.machine.target import NotOffered, Target, load_map, require_target
from spec_tests.machine.tests.small_suite import TWO_TESTS

pytest_plugins = ["pytester"]

#: Functions with other names than in torch.nn.parallel. The warning of the import fails no test.
VENDOR = """
import warnings
from torch.nn.parallel import comm
warnings.warn('an old package', UserWarning)
copies = comm.broadcast
def split(*args, **kwargs): ...
def concatenate(tensors, dim=0, destination=None, *, out=None): ...
"""
MAP = """
[comm]
broadcast = "vendor.functions:copies"
scatter = "vendor.functions:split"
gather = "vendor.functions:concatenate"
"""
#: Two tests: one calls a mapped function, the other one uses a name that the package lacks.
MAPPED = TWO_TESTS.format(
    one='target.comm.scatter.__name__ == "split"', two="target.comm.reduce_add"
)


@pytest.fixture
def vendor(tmp_path, write_package, monkeypatch):
    """Write a package with the module ``VENDOR``, and ``map.toml``; return their folder."""
    write_package("vendor", functions=VENDOR)
    (tmp_path / "map.toml").write_text(MAP)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_verdicts_describe_the_mapped_functions(vendor, run_suite):
    file, option = vendor / "v.jsonl", f"--target-map={vendor / 'map.toml'}"
    result = run_suite(MAPPED, option, f"--verdicts={file}", target="vendor")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    header, tests = verdict_file.read_run(file)
    assert header["command"].endswith(f" {option}")
    found = {name: each.verdict for name, each in verdicts.find_evidence(tests).items()}
    assert found == {"a.one": "pass", "a.two": "not-offered"}


def test_a_run_with_missing_names_but_no_failures_has_exit_status_6(vendor, run_command_here):
    clauses = "--clause=comm.broadcast.copies", "--clause=comm.reduce-add.sum"
    command = ["run", "vendor", "--accelerator=sim", "--target-map=map.toml"]
    status, printed = run_command_here(*command, *clauses)
    assert status == 6, printed


def test_a_package_needs_no_part_besides_a_mapped_name(vendor, write_package):
    write_package("mine")
    assert require_target("mine", ["comm.scatter=torch.nn.parallel.comm:scatter"])


def test_target_map_replaces_submodules_and_single_names_and_the_last_option_counts(vendor):
    options = [str(vendor / "map.toml"), "comm=torch.nn.parallel.comm"]
    options += ["comm.scatter=torch.nn.parallel.comm:scatter"]
    options += ["functions.Gather=vendor.functions:concatenate"]
    target = Target("vendor", load_map(options))
    assert target.comm.scatter.__module__ == "torch.nn.parallel.comm"
    assert target.comm.gather.__name__ == "concatenate"
    assert target.functions.Gather.__name__ == "concatenate"
    with pytest.raises(NotOffered, match=r"does not define comm\.no_such_name"):
        _ = target.comm.no_such_name
    with pytest.raises(NotOffered, match=r"does not define functions\.Scatter"):
        _ = target.functions.Scatter
    with pytest.raises(NotOffered, match="has no submodule replicate"):
        _ = target.replicate.replicate
    with pytest.raises(NotOffered, match="has no submodule _functions"):
        target.submodule("_functions")


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("comm", "neither NAME=PLACE nor a file"),
        ("com.scatter=vendor.functions:split", "unknown part; the parts are comm, "),
        ("comm.scatter=vendor.functions:no_such_name", "has no attribute"),
        ("comm=.comm", "--target-map comm=.comm: "),
        ("comm=", "--target-map comm=: "),
        ("comm=no_such_module", "No module named 'no_such_module'"),
    ],
)
def test_a_target_map_with_an_unknown_name_is_refused(vendor, option, text):
    with pytest.raises(pytest.UsageError, match=text):
        load_map([option])


@pytest.mark.parametrize(
    ("files", "target", "options", "text"),
    [
        ({"other": ""}, "mine", [], "has none of the submodules comm, functions, *"),
        (
            {"replicate": "a = 1\nb = = 2"},
            "mine",
            [],
            "cannot be imported: SyntaxError: invalid syntax (*replicate.py, line 2)",
        ),
        (
            {"comm": "\nimport no_such_name"},
            "mine",
            [],
            "cannot be imported: ModuleNotFoundError: "
            "No module named 'no_such_name' (*comm.py, line 2)",
        ),
        ({"comm": ""}, "./mine", [], "is no module name*"),
        ({"comm": ""}, "other.part", [], "cannot be imported: ModuleNotFoundError: *'other'*"),
        ({"a": "b = = 2"}, "mine", ["comm=mine.a"], "cannot be imported: SyntaxError: invalid *"),
    ],
)
def test_a_target_that_cannot_be_imported_is_refused(
    write_package, tmp_path, monkeypatch, files, target, options, text
):
    write_package("mine", **files)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(pytest.UsageError) as caught:
        require_target(target, options)
    assert fnmatch(str(caught.value), f"the target {target} {text}")
