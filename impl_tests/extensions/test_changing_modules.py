"""Modules that change members, or refer to modules, as CPU replicas and as kept replicas."""

from contextlib import ExitStack, contextmanager, nullcontext
from operator import attrgetter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import impl
from spec_tests import checks
from spec_tests.checks.wrapper_laws import results_of, with_gradients
from spec_tests.strategies.changed_members import changes_members_specs
from spec_tests.strategies.references import referring_specs

#: Numbers of devices of the topology: two replicas on the CPU.
CPUS = (None, None)
CHANGING = changes_members_specs()
REFERRING = referring_specs(hooks=False) | referring_specs(hooks=True)
HELD = pytest.mark.parametrize("is_held", [False, True], ids="is_held={}".format)
#: The devices of held replicas. The clauses of the suite are about others on several devices.
SLOTS = st.sampled_from([(0, 1), (0, 0, 1), CPUS])


@contextmanager
def computing(wrapper, *, is_held, grad):
    """Hold the replicas, without grad mode, or set the grad mode."""
    block = wrapper.hold() if is_held else nullcontext()
    with torch.set_grad_enabled(grad and not is_held), block:
        yield wrapper


@HELD
@given(
    spec=CHANGING, rows=st.integers(2, 5), held=SLOTS, in_turn=st.booleans(), grad=st.booleans()
)
def test_replicas_have_the_outputs_and_gradients_of_the_module(
    topology, is_held, spec, rows, held, in_turn, grad
):
    slots = held if is_held else CPUS
    x = spec.network.rows(rows, requires_grad=True, slot=slots[0]).build(topology)
    module = spec.build(topology, slots[0])
    leaves = [x, *filter(attrgetter("requires_grad"), module.parameters())]
    wrapper = impl.DataParallel(module, topology.take(slots), in_turn=in_turn)
    with computing(wrapper, is_held=is_held, grad=grad):
        found = [wrapper(x) for _ in range(1 + is_held)]
        expected = module(x)
    for output in found:
        both = (with_gradients(each, leaves) for each in (output, expected))
        checks.same(*both, spec, tolerance=checks.LAYER)


@HELD
@given(
    spec=REFERRING,
    rows=st.lists(st.sampled_from([6, 9]), min_size=1, max_size=2),
    held=SLOTS,
    in_turn=st.booleans(),
    grad=st.booleans(),
)
def test_references_and_hooks_run_on_the_replicas(
    topology, is_held, spec, rows, held, in_turn, grad
):
    slots = held if is_held else CPUS
    batches = [spec.network.rows(count, slot=slots[0]).build(topology) for count in rows]
    results = []
    for plain in (False, True):
        with ExitStack() as blocks:

            def wrap(module):
                wrapper = impl.DataParallel(module, topology.take(slots), in_turn=in_turn)
                return blocks.enter_context(computing(wrapper, is_held=is_held, grad=grad))

            results.append(results_of(spec.build(topology, slots[0], plain=plain), wrap, batches))
    checks.same(*results, spec, tolerance=checks.LAYER)
