"""Features that the simulator can lack, the clauses that find them, and tests that need them."""

import re

import pytest
import torch

from spec_tests import simulator
from spec_tests.cli.main import main
from spec_tests.machine import capabilities
from spec_tests.machine.capabilities import find_missing
from spec_tests.machine.devices import BACK_ENDS
from spec_tests.simulator import native
from spec_tests.strategies import supported_layers

pytestmark = pytest.mark.usefixtures("sim")
pytest_plugins = ["pytester"]

#: For each feature of the simulator: the features and dtypes that are missing if this feature is
#: switched off.
MISSING = {
    "new-streams": {"new-streams", "distinct-streams"},
    "events": {"events"},
    "record-stream": {"record-stream"},
    "half-precision": {"float16", "bfloat16", "autocast"},
    "double-precision": {"float64", "complex128"},
    "complex-numbers": {"complex64", "complex128"},
    "sparse": {"sparse"},
    "pinned-memory": {"pinned-memory"},
    "kept-parameters": {"kept-parameters"},
}


@pytest.fixture
def switch_off():
    """Return a function that switches features of the simulator off until the test ends."""
    yield lambda *names: native.extension().set_missing_features(list(names))
    native.extension().set_missing_features([])


def find(topology):
    return capabilities.find.__wrapped__(topology)


def missing_names(topology):
    offered = find(topology)
    return {name for name in capabilities.names() if not offered.offers(name)}


def test_simulator_computes_every_layer(topology):
    assert supported_layers.find_errors(topology) == {}


def test_layers_that_the_devices_compute_wrong_are_not_drawn(topology, monkeypatch):
    forward = torch.nn.GRU.forward
    monkeypatch.setattr(
        torch.nn.GRU, "forward", lambda self, x: _zeros_on_devices(forward, self, x)
    )
    supported_layers._find_error.cache_clear()
    try:
        assert supported_layers.computed(["linear", "gru"]) == ["linear"]
        with pytest.raises(pytest.skip.Exception, match="do not compute the layer gru as the CPU"):
            supported_layers.computed(["gru"])
    finally:
        supported_layers._find_error.cache_clear()


def _zeros_on_devices(forward, module, x):
    """Return the outputs of a recurrent layer; on an accelerator they are zero."""
    outputs, state = forward(module, x)
    return (outputs if x.device.type == "cpu" else outputs * 0), state


@pytest.mark.parametrize("feature", MISSING)
def test_clauses_find_the_feature_that_is_switched_off(topology, switch_off, feature):
    switch_off(feature)
    assert missing_names(topology) == MISSING[feature]


def test_a_feature_that_is_wrong_is_not_offered_but_its_clause_fails(topology):
    with simulator.fault("seconds"):
        offered = find(topology)
    assert not offered.offers("events")
    assert "events" not in offered.errors.values()


def test_functions_that_are_left_out_are_neither_tried_nor_offered(topology, monkeypatch):
    monkeypatch.setattr(torch, "Event", None)  # A test of events would raise an error.
    offered = capabilities.find.__wrapped__(topology, without=frozenset({"events", "float64"}))
    assert not offered.offers("events")
    assert not offered.offers("float64")
    assert not offered.errors


def error_in(module, statement, **names):
    """Return the error that a statement raises in a module with this name."""
    with pytest.raises((RuntimeError, TypeError)) as caught:
        exec(statement, {"__name__": module, "torch": torch, **names})
    return caught.value


def test_a_required_function_that_is_missing_is_no_reason_to_skip(topology, monkeypatch):
    def fail(*_):
        raise RuntimeError("no streams")

    monkeypatch.setattr(torch.accelerator, "current_stream", fail)
    offered = find(topology)
    assert {"devices.streams.current", "devices.streams.waits"} <= {
        each.name for each in offered.broken
    }
    error = error_in("spec_tests.chapter", "torch.accelerator.current_stream()")
    monkeypatch.undo()
    assert find_missing(error, offered, "impl") is None


def test_an_optional_function_that_is_wrong_is_not_offered_and_named(topology, monkeypatch):
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda tensor, stream: None)
    offered = find(topology)
    assert not offered.offers("record-stream")
    assert "devices.memory.record-stream" in {each.name for each in offered.broken}


@pytest.mark.parametrize(
    ("module", "target", "expected"),
    [
        ("spec_tests.chapter", "impl", "float64"),
        ("impl.comm", "impl", None),
        ("torch.nn.modules.linear", "torch.nn.parallel", "float64"),
        ("package_of_target_map.comm", "impl", None),
        ("back_end.kernels", "impl", "float64"),
        ("impl_tests.test_comm", "impl", "float64"),
    ],
)
def test_only_the_suite_may_use_missing_features(
    topology, switch_off, monkeypatch, module, target, expected
):
    switch_off("double-precision")
    monkeypatch.setenv(BACK_ENDS, "back_end.load")
    error = error_in(module, "torch.ones(1, dtype=torch.float64, device='sim')")
    assert find_missing(error, find(topology), target, "impl_tests") == expected


@pytest.mark.parametrize(
    ("back_end_name", "expected"),
    [("sim", "aten::add"), ("Sparsesim", "aten::add"), ("Meta", None)],
)
def test_operator_is_missing_only_if_the_error_names_the_back_end(
    topology, back_end_name, expected
):
    text = f"Could not run 'aten::add' with arguments from the '{back_end_name}' backend."
    error = error_in("spec_tests.chapter", "raise error", error=NotImplementedError(text))
    assert find_missing(error, find(topology), "impl") == expected


@pytest.fixture
def doctor(_restored, capfd):
    """Return a function that runs ``doctor``, and returns exit status and output."""

    def run(*options):
        capabilities.find.cache_clear()
        status = main(["doctor", *options])
        capabilities.find.cache_clear()
        return status, capfd.readouterr().out

    return run


def test_doctor_shows_a_fault_of_the_devices(doctor):
    status, printed = doctor("--fault=garbled-peers")
    assert status == 1
    assert re.search(r"^devices\.copies\.values +wrong ", printed, re.MULTILINE)
    wrong = re.findall(
        r"^devices\.\S+ +wrong (?:.*\n){2} +(needed|optional)", printed, re.MULTILINE
    )
    counts = f"{wrong.count('needed')} required clauses, {wrong.count('optional')} optional"
    assert printed.splitlines()[-1] == f"violated: {counts}; exit status 1"


def test_doctor_switches_all_features_of_the_simulator_off(doctor, monkeypatch):
    monkeypatch.setenv("SIM_MISSING_FEATURES", "")
    status, printed = doctor("--without=all")
    assert simulator.missing() == (*simulator.FEATURES,)
    assert printed.splitlines()[-1].endswith(f"exit status {status}")


def test_doctor_prints_one_line_about_devices_that_do_not_work(doctor):
    status, printed = doctor("--fault=no-memory")
    number = len(capabilities.device_clauses())
    assert status == 1
    assert printed.splitlines()[-1] == (
        "sim:0 does not work: sim out of memory: sim:0 has no memory left; "
        f"{number} clauses about devices not tried; exit status 1"
    )
    assert "devices." not in printed


def test_doctor_prints_each_clause_about_devices(doctor, switch_off):
    switch_off("new-streams")
    status, printed = doctor("--accelerator=sim", "-p", "json")
    assert status == 0
    assert f"{'devices.copies.values':<42}there" in printed
    assert "Backend doesn't support create a new Stream" in printed
    assert "optional, feature new-streams; used by data-parallel wrappers; without it" in printed
    assert all(name in printed for name in capabilities.device_clauses())
    assert printed.splitlines()[-1].startswith("violated: 0 required clauses, ")
    assert printed.splitlines()[-1].endswith(" optional; exit status 0")


TESTS = """
import torch
from spec_tests.strategies.tensors import TensorSpec
@clause("a.one")
def test_suite(topology): TensorSpec((1,), torch.float64).build(topology)
@clause("a.two")
def test_offered(topology): torch.ones(1, device=topology.device(0))
"""


@pytest.mark.slow
@pytest.mark.parametrize("option", ["--without=double-precision", "--without=all"])
def test_test_that_needs_a_missing_dtype_is_not_run(run_suite_in_new_process, option):
    result = run_suite_in_new_process(TESTS, option, "-rs")
    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines(["*features: all except *float64*", "*the devices lack float64"])


@pytest.mark.slow
def test_a_run_on_devices_that_do_not_work_is_refused(run_suite_in_new_process):
    result = run_suite_in_new_process(TESTS, "--fault=no-memory")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    line = "ERROR: sim:0 does not work: sim out of memory: sim:0 has no memory left"
    result.stderr.fnmatch_lines([line])


@pytest.mark.slow
def test_the_header_names_a_fault_of_the_devices(run_suite_in_new_process):
    result = run_suite_in_new_process(TESTS, "--fault=garbled-peers")
    line = "devices: devices.copies.values: wrong: 64 bytes copied from sim:0 to sim:1*"
    result.stdout.fnmatch_lines([line])


CHILD = """
import sys
from spec_tests.machine.processes import run_script
@clause("a.one")
def test_child(target, topology):
    done = run_script("import sys; print('my_back_end' in sys.modules)", target, topology)
    assert done.stdout == "True\\n", done.stderr
@clause("a.two")
def test_two(): pass
"""


@pytest.mark.slow
def test_child_processes_import_the_modules_of_the_option_p(run_suite_in_new_process, pytester):
    pytester.path.joinpath("my_back_end.py").write_text("")
    result = run_suite_in_new_process(CHILD, "-p", "my_back_end", "-p", "pytester")
    result.assert_outcomes(passed=2)
