"""comm: private names that other packages import."""

import pytest
import torch
from hypothesis import given

from spec_tests import checks
from spec_tests.checks.refusals import check_error
from spec_tests.machine.clauses import clause, error_of
from spec_tests.strategies.comm import REAL
from spec_tests.strategies.tensors import COMPLEX, counting, tensor_specs

#: Names of the submodules that have the function `_get_device_index`.
MODULES = ["comm", "parallel_apply", "replicate"]


@pytest.fixture(params=MODULES)
def get_device_index(target, request):
    """Return `_get_device_index` of one submodule. Each test runs once for each submodule."""
    return getattr(target, request.param).private("_get_device_index")


@clause("comm.get-device-index")
def test_get_device_index_returns_the_ordinal_for_every_spelling(get_device_index, topology):
    for device in topology.devices:
        spellings = [device, str(device), device.index]
        checks.same([get_device_index(spelling) for spelling in spellings], [device.index] * 3)


@clause("comm.get-device-index")
def test_get_device_index_returns_the_current_device_with_optional(get_device_index, topology):
    kind = topology.accelerator
    for device in topology.devices:
        with torch.accelerator.device_index(device.index):
            found = [
                get_device_index(spelling, True) for spelling in (None, kind, torch.device(kind))
            ]
        checks.same(found, [device.index] * 3)


@clause("comm.get-device-index")
@pytest.mark.parametrize("device", ["cpu", torch.device("cpu")], ids=repr)
def test_get_device_index_returns_minus_one_for_the_cpu_with_allow_cpu(get_device_index, device):
    assert get_device_index(device, allow_cpu=True) == -1


@clause("comm.get-device-index")
def test_get_device_index_refuses_the_cpu_and_a_missing_index(get_device_index, topology):
    for number, device, options in (
        (0, "cpu", {}),
        (0, "cpu", {"optional": True}),
        (1, torch.device(topology.accelerator), {"allow_cpu": True}),
    ):
        with pytest.raises(ValueError) as caught:
            get_device_index(device, **options)
        check_error(caught.value, error_of("comm.get-device-index", number), topology)


@clause("comm.handle-complex")
@given(spec=tensor_specs(dtypes=COMPLEX))
def test_complex_tensors_are_viewed_as_real(target, topology, spec):
    tensor = spec.build(topology)
    found = target.comm.private("_handle_complex")(tensor)
    checks.same(found, torch.stack([tensor.real, tensor.imag], dim=-1), spec)
    assert found.data_ptr() == tensor.data_ptr()


@clause("comm.handle-complex")
@pytest.mark.parametrize("dtype", REAL)
def test_real_tensors_are_returned_themselves(target, topology, dtype):
    tensor = counting((2,), dtype, topology.device(0))
    assert target.comm.private("_handle_complex")(tensor) is tensor


@clause("comm.handle-complex")
def test_uninitialized_parameters_are_returned_themselves(target):
    parameter = torch.nn.UninitializedParameter()
    assert target.comm.private("_handle_complex")(parameter) is parameter
