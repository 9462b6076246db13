"""Members that forward changes, references to submodules, and hooks that are methods."""

from operator import attrgetter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import impl
from spec_tests.harness.compare import checks
from spec_tests.harness.compare.snapshot import snapshot
from spec_tests.harness.compare.wrapper_laws import results_of, with_gradients
from spec_tests.strategies.changed_members import changes_members_specs
from spec_tests.strategies.references import referring_specs

CPU_DEVICES = ["cpu", "cpu"]
SPEC = changes_members_specs()


@given(spec=SPEC, rows=st.integers(2, 5), in_turn=st.booleans(), grad=st.booleans())
def test_cpu_replicas_have_the_outputs_and_gradients_of_the_module(
    topology, spec, rows, in_turn, grad
):
    x = spec.network.rows(rows, requires_grad=True, slot=None).build(topology)
    module = spec.build(topology, None)
    leaves = [x, *filter(attrgetter("requires_grad"), module.parameters())]
    with torch.set_grad_enabled(grad):
        found = impl.DataParallel(module, CPU_DEVICES, in_turn=in_turn)(x)
        expected = module(x)
    found, expected = with_gradients(found, leaves), with_gradients(expected, leaves)
    checks.same(found, expected, spec, tolerance=checks.LAYER)


@given(spec=SPEC, rows=st.integers(2, 5), slots=st.sampled_from([(0, 1), (0, 0, 1), (None, None)]))
def test_kept_replicas_have_the_outputs_of_the_module(topology, spec, rows, slots):
    x = spec.network.rows(rows, slot=slots[0]).build(topology)
    module = spec.build(topology, slots[0])
    wrapper = impl.DataParallel(module, topology.take(slots))
    with torch.no_grad(), wrapper.hold():
        found = wrapper(x), wrapper(x)
    with torch.no_grad():
        expected = module(x)
    for output in found:
        checks.same(output, expected, spec, tolerance=checks.LAYER)


@pytest.mark.parametrize("with_parameters", [False, True], ids="with_parameters={}".format)
@given(spec=SPEC)
def test_a_member_of_a_replica_is_in_one_place(topology, spec, with_parameters):
    network = spec.build(topology)
    for replica in impl.replicate(network, topology.take(2), with_parameters=with_parameters):
        for module in replica.modules():
            places = [vars(module), module._parameters, module._buffers, module._modules]
            names = [name for place in places for name in dict(place.items())]
            assert len(names) == len({*names})


REFERRING = referring_specs(hooks=False) | referring_specs(hooks=True)
ROWS = st.lists(st.sampled_from([4, 6]), min_size=1, max_size=2)


@given(spec=REFERRING, rows=ROWS, in_turn=st.booleans(), grad=st.booleans())
def test_references_and_hooks_run_on_the_cpu_replica(topology, spec, rows, in_turn, grad):
    batches = [spec.network.rows(count, slot=None).build(topology) for count in rows]
    with torch.set_grad_enabled(grad):
        found, expected = (
            results_of(
                spec.build(topology, None, plain=plain),
                lambda module: impl.DataParallel(module, CPU_DEVICES, in_turn=in_turn),
                batches,
            )
            for plain in (False, True)
        )
    checks.same(found, expected, spec, tolerance=checks.LAYER)


@given(spec=REFERRING, rows=ROWS, slots=st.sampled_from([(0, 1), (None, None)]))
def test_references_and_hooks_run_on_held_replicas(topology, spec, rows, slots):
    batches = [spec.network.rows(count, slot=slots[0]).build(topology) for count in rows]
    results = []
    for plain in (False, True):
        wrapper = impl.DataParallel(
            spec.build(topology, slots[0], plain=plain), topology.take(slots)
        )
        with torch.no_grad(), wrapper.hold():
            results.append([wrapper(x) for x in batches])
    found, expected = (snapshot(each, {}) for each in results)
    checks.same(found, expected, spec, tolerance=checks.LAYER)
