"""spec_tests.checks.stream_log: the streams of the copies that a call makes."""

import pytest
import torch

from spec_tests.checks.stream_log import streams_of

_LIBRARY = torch.library.Library("stream_log_test", "DEF")
_LIBRARY.define("move(Tensor x, Device device) -> Tensor")
_LIBRARY.impl("move", lambda x, device: x.to(device), "CompositeExplicitAutograd")
_LIBRARY.define("make(Tensor x, Device device) -> Tensor")
_LIBRARY.impl(
    "make",
    lambda x, device: torch.empty_like(x, device=device).copy_(x),
    "CompositeExplicitAutograd",
)

#: For each name, a call, and the number of copies if the tensor is already on the device.
CALLS = {
    "to": (lambda x, device: x.to(device), 0),
    "copy_": (lambda x, device: torch.empty_like(x, device=device).copy_(x), 1),
    "an operator that calls to": (torch.ops.stream_log_test.move, 0),
    "an operator that calls copy_": (torch.ops.stream_log_test.make, 1),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("requires_grad", [False, True])
def test_the_stream_of_a_copy_is_recorded_also_inside_an_operator(topology, name, requires_grad):
    (call, on_own_device), (source, device, *_) = CALLS[name], topology.devices
    tensor = torch.ones(2, device=source, requires_grad=requires_grad)
    with torch.Stream(device) as stream:
        assert streams_of(lambda: call(tensor, device)) == [stream]
    assert len(streams_of(lambda: call(tensor, source))) == on_own_device
