"""The simulated faults of back ends."""

import pytest
import torch

from spec_tests import simulator
from spec_tests.cuda_stand_ins import STAND_INS

pytestmark = pytest.mark.usefixtures("sim")


def test_only_the_innermost_fault_is_active():
    with simulator.fault("no-memory", device=1):
        with simulator.fault("no-memory", device=2):
            assert torch.ones(3, device="sim:1").tolist() == [1, 1, 1]
        with pytest.raises(torch.OutOfMemoryError, match="sim:1 has no memory left"):
            torch.ones(3, device="sim:0").to("sim:1")
    assert torch.ones(3, device="sim:1").tolist() == [1, 1, 1]


@pytest.mark.parametrize("name", simulator.PRIMITIVES)
def test_missing_primitives_fault_hides_functions_except_from_the_reference(name, reference):
    assert hasattr(torch._C, name)
    with simulator.fault("missing-primitives"):
        assert not hasattr(torch._C, name)
        with pytest.raises(AttributeError, match=f"module 'torch._C' has no attribute '{name}'"):
            getattr(torch._C, name)
        chunks = reference.comm.scatter(torch.ones(2), ["sim:0", "sim:1"])
    assert [chunk.tolist() for chunk in chunks] == [[1], [1]]
    assert hasattr(torch._C, name)


def test_missing_primitives_fault_hides_every_function_that_has_a_stand_in():
    assert set(simulator.PRIMITIVES) == set(STAND_INS)


def test_unknown_fault_raises():
    with pytest.raises(ValueError, match="sim has no fault 'slow'"), simulator.fault("slow"):
        pass
