"""impl._comm.checks with the device type of the CPU, and with none."""

import pytest
import torch

from impl._comm import checks

SHAPE = (2, 3, 4)


@pytest.fixture
def on_the_cpu(monkeypatch):
    monkeypatch.setattr(checks, "accelerator_type", lambda: "cpu")


def like(**extents):
    """A tensor of SHAPE, but for these extents: ``d1=5``."""
    return torch.ones([extents.get(f"d{dim}", extent) for dim, extent in enumerate(SHAPE)])


@pytest.mark.parametrize(("kind", "name"), [(None, "ACCELERATOR"), ("sim", "SIM")])
def test_the_accelerator_that_is_missed_has_a_name(monkeypatch, kind, name):
    monkeypatch.setattr(checks, "accelerator_type", lambda: kind)
    with pytest.raises(RuntimeError, match=f"input tensors to be {name} tensors, .* device 'cpu'"):
        checks.check_gather_inputs([torch.ones(1)], 0)


@pytest.mark.parametrize(
    ("dim", "parts"), [(0, ("d0", [1, 1])), (1, ("d1", [1, 2])), (2, ("d2", [3, 1]))]
)
def test_outputs_may_differ_where_they_are_cut(on_the_cpu, dim, parts):
    name, extents = parts
    outputs = [like(**{name: extent}) for extent in extents]
    assert checks.check_scatter_outputs(torch.ones(SHAPE), outputs, dim) == dim
    assert checks.check_scatter_outputs(torch.ones(SHAPE), outputs, dim - 3) == dim


@pytest.mark.parametrize(("dim", "other"), [(0, "d1"), (0, "d2"), (1, "d0"), (1, "d2"), (2, "d1")])
def test_outputs_may_not_differ_elsewhere(on_the_cpu, dim, other):
    outputs = [like(), like(**{other: 7})]
    with pytest.raises(RuntimeError, match="at index 1 has incorrect shape"):
        checks.check_scatter_outputs(torch.ones(SHAPE), outputs, dim)


def test_a_scalar_is_no_output(on_the_cpu):
    with pytest.raises(ValueError, match="one dimension to scatter to, but tensor at index 0"):
        checks.check_scatter_outputs(torch.tensor(1.0), [torch.tensor(1.0)], 0)


@pytest.mark.parametrize("anywhere", [False, True])
@pytest.mark.parametrize(("dim", "wrapped"), [(1, 1), (-1, 2), (-3, 0)])
def test_the_dimension_to_join_along_is_counted_from_the_front(on_the_cpu, anywhere, dim, wrapped):
    tensors = [like(), like()]
    assert checks.check_gather_inputs(tensors, dim, any_device=anywhere) == wrapped
