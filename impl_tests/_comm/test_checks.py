"""impl._comm.checks: argument checks of comm."""

import pytest
import torch

from impl._comm import checks

SHAPE = (2, 3, 4)


@pytest.mark.parametrize(("kind", "name"), [(None, "ACCELERATOR"), ("sim", "SIM")])
def test_error_names_the_expected_accelerator(monkeypatch, kind, name):
    monkeypatch.setattr(checks, "accelerator_type", lambda: kind)
    with pytest.raises(RuntimeError, match=f"input tensors to be {name} tensors, .* device 'cpu'"):
        checks.check_gather_inputs([torch.ones(1)], 0)


@pytest.mark.parametrize(("dim", "other"), [(0, 1), (0, 2), (1, 0), (1, 2), (2, 1)])
def test_scatter_outputs_of_wrong_extent_in_another_dimension_raise(topology, dim, other):
    wrong = [7 if index == other else extent for index, extent in enumerate(SHAPE)]
    outputs = [torch.ones(shape, device=topology.device(0)) for shape in (SHAPE, wrong)]
    with pytest.raises(RuntimeError, match="at index 1 has incorrect shape"):
        checks.check_scatter_outputs(torch.ones(SHAPE), outputs, dim)
