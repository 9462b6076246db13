"""The comparison of the simulator with an accelerator: what it finds, and what it does not."""

import json
import pickle
from dataclasses import replace

import pytest
import torch

from spec_tests.harness.compare.snapshot import TensorSnapshot
from spec_tests.harness.environment.target import Target
from spec_tests.meta_tests.simulator_against import __main__ as program
from spec_tests.meta_tests.simulator_against.calls import STRATEGIES, drawn
from spec_tests.meta_tests.simulator_against.records import differences, record
from spec_tests.strategies.calls import DeviceAt, PublicCall
from spec_tests.strategies.comm import dense


@pytest.fixture
def recorded(topology):
    """A function that makes calls on impl and gives the record."""
    return lambda *calls: record(calls, [Target("impl")], topology)


SCATTER = PublicCall(
    "comm.scatter", {"tensor": dense(), "devices": [DeviceAt(0), DeviceAt(0, "text")]}
)
ON_CPU = PublicCall(
    "comm.scatter", {"tensor": dense(slot=None), "devices": [DeviceAt(0), DeviceAt(1)]}
)
REFUSED = PublicCall("comm.gather", {"tensors": [dense(slot=None)]})


def tampered(side, part, change):
    """The record with one part of every outcome changed."""
    return {
        key: replace(each, **{part: change(getattr(each, part))}) for key, each in side.items()
    }


def test_a_record_does_not_differ_from_itself(recorded):
    assert not list(differences(recorded(SCATTER, REFUSED), recorded(SCATTER, REFUSED)))


def test_the_name_of_the_accelerator_is_no_difference(recorded, topology):
    text = repr(list(recorded(SCATTER, ON_CPU, REFUSED).values()))
    assert topology.accelerator not in text.replace("spec_tests.simulator", "")
    assert "'device': 'device:0'" in text


def _first_value_changed(result):
    first = result.members[0]
    values = first.values.clone()
    values[0, 0] += 1
    changed = TensorSnapshot(values, first.facts)
    return replace(result, members={**result.members, 0: changed})


def _first_stride_changed(result):
    first = result.members[0]
    changed = TensorSnapshot(first.values, {**first.facts, "strides": (7, 7)})
    return replace(result, members={**result.members, 0: changed})


@pytest.mark.parametrize(
    ("call", "part", "change"),
    [
        (ON_CPU, "result", _first_value_changed),
        (SCATTER, "result", _first_stride_changed),
        (REFUSED, "result", lambda failure: replace(failure, text="another")),
        (REFUSED, "result", lambda failure: replace(failure, kind="builtins.Other")),
        (SCATTER, "warnings", lambda texts: (*texts, "UserWarning: more")),
        (SCATTER, "inputs", lambda inputs: None),
        (SCATTER, "gradients", lambda found: "some"),
    ],
    ids=["value", "stride", "text", "class", "warnings", "inputs", "gradients"],
)
def test_what_differs_is_listed(recorded, call, part, change):
    side = recorded(SCATTER, ON_CPU, REFUSED)
    changed = {**side, **tampered(recorded(call), part, change)}
    for pair in (side, changed), (changed, side):
        (found,) = differences(*pair)
        assert found.call == repr(call)
        assert found.kind == f"{call.function}: {part}"
        assert found.text


def test_a_call_of_one_side_alone_is_listed(recorded):
    sides = recorded(SCATTER), recorded(SCATTER, REFUSED)
    for pair in sides, sides[::-1]:
        (found,) = differences(*pair)
        assert (found.call, found.kind) == (repr(REFUSED), "drawn on one side only")


def test_every_process_draws_the_same_calls():
    first, second = ([repr(call) for call in drawn(3)] for _ in range(2))
    assert first == second
    assert len(first) >= 2 * len(STRATEGIES)


@pytest.mark.parametrize("is_changed", [False, True], ids=["equal", "different"])
def test_the_program_writes_what_differs(recorded, tmp_path, monkeypatch, capsys, is_changed):
    side = pickle.loads(pickle.dumps(recorded(SCATTER)))
    other = tampered(side, "warnings", lambda texts: ("more",)) if is_changed else side
    monkeypatch.setattr(program, "_both", lambda options: (side, other))
    status = program.main(["--json", str(tmp_path / "found.json")])
    page = json.loads((tmp_path / "found.json").read_text())
    assert (status, page["differing"], len(page["differences"])) == (is_changed,) * 3
    assert page["calls"] == 1
    assert f"1 calls on both, {int(is_changed)} differ" in capsys.readouterr().out


def test_nothing_compared_is_no_success(monkeypatch):
    monkeypatch.setattr(program, "_both", lambda options: ({}, {}))
    assert program.main([]) == 1


def test_a_tensor_travels_between_processes(recorded):
    side = recorded(ON_CPU)
    (outcome,) = pickle.loads(pickle.dumps(side)).values()
    assert torch.equal(outcome.result.members[1].values, torch.arange(6.0, 12.0).reshape(2, 3))
