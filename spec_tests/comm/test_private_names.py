"""comm: private names that other packages import; some are in other modules, too."""

import pytest
import torch
from hypothesis import given

from spec_tests.harness import checks
from spec_tests.harness.clauses import clause
from spec_tests.strategies.comm import REAL
from spec_tests.strategies.tensors import COMPLEX, counting, tensor_specs

MODULES = ["comm", "parallel_apply", "replicate"]


@pytest.fixture(params=MODULES)
def device_index(target, request):
    return getattr(target, request.param).private("_get_device_index")


@clause("comm.get-device-index")
def test_every_spelling_of_a_device_has_its_ordinal(device_index, topology):
    for device in topology.devices:
        spellings = [device, str(device), device.index]
        checks.same([device_index(each) for each in spellings], [device.index] * 3)


@clause("comm.get-device-index")
def test_a_device_without_index_is_the_current_one_if_optional(device_index, topology):
    kind = topology.accelerator
    for device in topology.devices:
        with torch.accelerator.device_index(device.index):
            found = [device_index(each, True) for each in (None, kind, torch.device(kind))]
        checks.same(found, [device.index] * 3)


@clause("comm.get-device-index")
@pytest.mark.parametrize("device", ["cpu", torch.device("cpu")], ids=repr)
def test_the_cpu_is_minus_one_if_allowed(device_index, device):
    assert device_index(device, allow_cpu=True) == -1


@clause("comm.get-device-index")
@pytest.mark.parametrize("options", [{}, {"optional": True}], ids=repr)
def test_the_cpu_is_refused_otherwise(device_index, options):
    with pytest.raises(ValueError, match="device, but got: cpu"):
        device_index("cpu", **options)


@clause("comm.get-device-index")
def test_a_device_without_index_is_refused_otherwise(device_index, topology):
    with pytest.raises(ValueError, match="with a specified index or an integer"):
        device_index(torch.device(topology.accelerator), allow_cpu=True)


@clause("comm.handle-complex")
@given(spec=tensor_specs(dtypes=COMPLEX))
def test_complex_tensors_are_viewed_as_real_ones(target, topology, spec):
    tensor = spec.build(topology)
    found = target.comm.private("_handle_complex")(tensor)
    checks.same(found, torch.stack([tensor.real, tensor.imag], dim=-1), spec)
    assert found.data_ptr() == tensor.data_ptr()


@clause("comm.handle-complex")
@pytest.mark.parametrize("dtype", REAL)
def test_real_tensors_stay_themselves(target, topology, dtype):
    tensor = counting((2,), dtype, topology.device(0))
    assert target.comm.private("_handle_complex")(tensor) is tensor


@clause("comm.handle-complex")
def test_uninitialized_parameters_stay_themselves(target):
    parameter = torch.nn.UninitializedParameter()
    assert target.comm.private("_handle_complex")(parameter) is parameter
