"""The program that compares the simulator with a real accelerator."""

import json
import pickle
from dataclasses import replace

import pytest
import torch

from reports.gpu_day.comparison import __main__ as program
from reports.gpu_day.comparison.calls import STRATEGIES, draw_calls
from reports.gpu_day.comparison.records import find_differences, record_outcomes
from spec_tests.harness.compare.snapshot import TensorSnapshot
from spec_tests.harness.environment.target import Target
from spec_tests.strategies.calls import DeviceAt, PublicCall
from spec_tests.strategies.comm import dense


@pytest.fixture
def record_calls(topology):
    """Return a function that runs calls on impl and returns the record."""
    return lambda *calls: record_outcomes(calls, [Target("impl")], topology)


SCATTER = PublicCall(
    "comm.scatter", {"tensor": dense(), "devices": [DeviceAt(0), DeviceAt(0, "text")]}
)
CPU_SCATTER = PublicCall(
    "comm.scatter", {"tensor": dense(slot=None), "devices": [DeviceAt(0), DeviceAt(1)]}
)
FAILING_GATHER = PublicCall("comm.gather", {"tensors": [dense(slot=None)]})


def changed_record(record, part, change):
    """Return ``record`` with one part of every outcome changed."""
    return {
        key: replace(each, **{part: change(getattr(each, part))}) for key, each in record.items()
    }


def test_equal_records_have_no_difference(record_calls):
    assert not list(
        find_differences(
            record_calls(SCATTER, FAILING_GATHER), record_calls(SCATTER, FAILING_GATHER)
        )
    )


def test_record_replaces_name_of_the_accelerator(record_calls, topology):
    text = repr(list(record_calls(SCATTER, CPU_SCATTER, FAILING_GATHER).values()))
    assert topology.accelerator not in text.replace("spec_tests.simulator", "")
    assert "'device': 'device:0'" in text


def _change_first_value(result):
    first = result.members[0]
    values = first.values.clone()
    values[0, 0] += 1
    changed = TensorSnapshot(values, first.facts)
    return replace(result, members={**result.members, 0: changed})


def _change_first_stride(result):
    first = result.members[0]
    changed = TensorSnapshot(first.values, {**first.facts, "strides": (7, 7)})
    return replace(result, members={**result.members, 0: changed})


@pytest.mark.parametrize(
    ("call", "part", "change"),
    [
        (CPU_SCATTER, "result", _change_first_value),
        (SCATTER, "result", _change_first_stride),
        (FAILING_GATHER, "result", lambda failure: replace(failure, text="another")),
        (FAILING_GATHER, "result", lambda failure: replace(failure, kind="builtins.Other")),
        (SCATTER, "warnings", lambda texts: (*texts, "UserWarning: more")),
        (SCATTER, "inputs", lambda inputs: None),
        (SCATTER, "gradients", lambda gradients: "some"),
    ],
    ids=["value", "stride", "text", "class", "warnings", "inputs", "gradients"],
)
def test_each_changed_part_of_an_outcome_is_a_difference(record_calls, call, part, change):
    before = record_calls(SCATTER, CPU_SCATTER, FAILING_GATHER)
    after = {**before, **changed_record(record_calls(call), part, change)}
    for pair in (before, after), (after, before):
        (difference,) = find_differences(*pair)
        assert difference.call == repr(call)
        assert difference.kind == f"{call.function}: {part}"
        assert difference.text


def test_call_missing_from_one_record_is_a_difference(record_calls):
    records = record_calls(SCATTER), record_calls(SCATTER, FAILING_GATHER)
    for pair in records, records[::-1]:
        (difference,) = find_differences(*pair)
        assert (difference.call, difference.kind) == (
            repr(FAILING_GATHER),
            "missing from one record",
        )


def test_drawn_calls_are_deterministic():
    first, second = ([repr(call) for call in draw_calls(3)] for _ in range(2))
    assert first == second
    assert len(first) >= 2 * len(STRATEGIES)


@pytest.mark.parametrize("is_changed", [False, True], ids=["equal", "different"])
def test_program_writes_differences_to_json(
    record_calls, tmp_path, monkeypatch, capsys, is_changed
):
    simulated = pickle.loads(pickle.dumps(record_calls(SCATTER)))
    real = (
        changed_record(simulated, "warnings", lambda texts: ("more",)) if is_changed else simulated
    )
    monkeypatch.setattr(program, "_run_both", lambda options: (simulated, real))
    status = program.main(["--json", str(tmp_path / "differences.json")])
    summary = json.loads((tmp_path / "differences.json").read_text())
    assert (status, summary["differing"], len(summary["differences"])) == (is_changed,) * 3
    assert summary["calls"] == 1
    assert f"1 calls compared, {int(is_changed)} differ" in capsys.readouterr().out


def test_program_that_compares_no_calls_fails(monkeypatch):
    monkeypatch.setattr(program, "_run_both", lambda options: ({}, {}))
    assert program.main([]) == 1


def test_pickled_record_keeps_tensor_values(record_calls):
    before = record_calls(CPU_SCATTER)
    (outcome,) = pickle.loads(pickle.dumps(before)).values()
    assert torch.equal(outcome.result.members[1].values, torch.arange(6.0, 12.0).reshape(2, 3))
