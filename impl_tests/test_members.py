"""Modules whose forward changes the parameters of a submodule: lanes, hold() and replicate."""

from operator import attrgetter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import impl
from spec_tests.harness.compare import checks
from spec_tests.oracle.wrapped_module import with_gradients
from spec_tests.strategies.changed_members import changes_members_specs

LANES = ["cpu", "cpu"]
SPEC = changes_members_specs()


@given(spec=SPEC, rows=st.integers(2, 5), in_turn=st.booleans(), grad=st.booleans())
def test_lanes_compute_what_the_module_computes(topology, spec, rows, in_turn, grad):
    x = spec.network.rows(rows, requires_grad=True, slot=None).build(topology)
    module = spec.build(topology, None)
    leaves = [x, *filter(attrgetter("requires_grad"), module.parameters())]
    with torch.set_grad_enabled(grad):
        found = impl.DataParallel(module, LANES, in_turn=in_turn)(x)
        expected = module(x)
    found, expected = with_gradients(found, leaves), with_gradients(expected, leaves)
    checks.same(found, expected, spec, tolerance=checks.LAYER)


@given(spec=SPEC, rows=st.integers(2, 5), slots=st.sampled_from([(0, 1), (0, 0, 1), (None, None)]))
def test_held_replicas_compute_what_the_module_computes(topology, spec, rows, slots):
    x = spec.network.rows(rows, slot=slots[0]).build(topology)
    module = spec.build(topology, slots[0])
    wrapper = impl.DataParallel(module, topology.take(slots))
    with torch.no_grad(), wrapper.hold():
        found = wrapper(x)
    with torch.no_grad():
        expected = module(x)
    checks.same(found, expected, spec, tolerance=checks.LAYER)


@pytest.mark.parametrize("with_parameters", [False, True], ids="with_parameters={}".format)
@given(spec=SPEC)
def test_a_member_of_a_replica_is_in_one_place(topology, spec, with_parameters):
    network = spec.build(topology)
    for replica in impl.replicate(network, topology.take(2), with_parameters=with_parameters):
        for module in replica.modules():
            places = [vars(module), module._parameters, module._buffers, module._modules]
            names = [name for place in places for name in dict(place.items())]
            assert len(names) == len({*names})
