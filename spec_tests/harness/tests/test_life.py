"""The state machine of wrappers: the violations that it leaves out."""

from types import SimpleNamespace

import torch

from spec_tests.data_parallel.life import known
from spec_tests.harness.conformance import register
from spec_tests.harness.environment.target import REFERENCE, Target
from spec_tests.oracle import naive


def _naive(module, device_ids, output_device=None):
    devices = [*map(torch.device, device_ids)]
    return naive.DataParallel(module, devices, output_device or devices[0], 0)


def test_probes_show_the_violations_that_a_register_records(topology):
    records = register.load(register.FOLDER / f"{REFERENCE}.toml")
    recorded = {clause for record in records for clause in record.clauses}
    assert known.shown_by(Target(REFERENCE), topology) == recorded & known.PROBES.keys()
    correct = SimpleNamespace(data_parallel=SimpleNamespace(DataParallel=_naive))
    assert known.shown_by(correct, topology) == set()
