"""The state machine of wrappers: the violations that it leaves out, and its errors."""

from types import SimpleNamespace

import pytest
import torch

from spec_tests.data_parallel.life import violations
from spec_tests.data_parallel.life.program import LifeError
from spec_tests.data_parallel.life.state_machine import Life
from spec_tests.machine import register
from spec_tests.machine.target import REFERENCE, Part, Target
from spec_tests.oracle import naive
from spec_tests.strategies.modules import Layer, ModuleSpec


def _naive(module, device_ids, output_device=None):
    devices = [*map(torch.device, device_ids)]
    return naive.DataParallel(module, devices, output_device or devices[0], 0)


def test_probes_show_the_violations_that_a_register_records(topology):
    records = register.load(register.FOLDER / f"{REFERENCE}.toml")
    recorded = {clause for record in records for clause in record.clauses}
    assert violations.shown_by(Target(REFERENCE), topology) == recorded & violations.PROBES.keys()
    correct = SimpleNamespace(data_parallel=SimpleNamespace(DataParallel=_naive))
    assert violations.shown_by(correct, topology) == set()


def _part(wrapper):
    return Part("data_parallel", SimpleNamespace(DataParallel=wrapper))


class _Refusing(naive.DataParallel):
    def __init__(self, module, device_ids, output_device, dim):
        super().__init__(module, [torch.device("cpu")], torch.device("cpu"), dim)

    def forward(self, *args, **kwargs):
        raise TypeError("no rows")


def test_a_failure_shows_the_error_of_the_target_and_the_steps_of_the_life(topology):
    target = SimpleNamespace(name="mine", mapping={}, data_parallel=_part(_Refusing))
    life = Life(target, topology, frozenset())
    net, options = ModuleSpec((Layer("linear"),)), {"keywords": (), "functional": False}
    settings = {"output": None, "dim": 0, "structure": "tensor", "current": 0, "training": None}
    life.wrap(net=net, slots=(0, 1), **settings)
    with pytest.raises(LifeError, match="output is TypeError: no rows") as caught:
        life.forward(rows=2, mode="grad", **options, on_cpu=True, requires_grad=False)
    life.teardown()
    assert str(caught.value).endswith("TypeError: no rows")
    assert 'raise TypeError("no rows")' in str(caught.value)
    of_class, of_wrap, of_forward = caught.value.failure.call.splitlines()
    assert of_class == "life = Life(target, topology, set([]))"
    assert of_wrap.startswith("life.wrap(net=ModuleSpec((Layer('linear'),)), slots=(0, 1)")
    assert of_forward.startswith("life.forward(rows=2, mode='grad'")
    assert "target = Target('mine', {})" in caught.value.__notes__[0]
