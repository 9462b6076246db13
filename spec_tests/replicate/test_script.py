"""replicate: script modules."""

import pytest
from hypothesis import given
from torch import nn

from spec_tests.harness.compare import checks
from spec_tests.harness.conformance.clauses import clause
from spec_tests.harness.environment import example_count
from spec_tests.replicate.without_jit import count_replicas
from spec_tests.strategies.jit_modules import PartlyBuiltScript, script_calls

#: Decorator that runs a third of the usual number of examples, because each is slow.
FEWER_EXAMPLES = example_count.divide_examples(3)
PYTHON_CHILD_TEXT = "Cannot replicate network where python modules are children of ScriptModule"


def _identity(module):
    return module


@clause("replicate.script.scripted")
@FEWER_EXAMPLES
@given(call=script_calls("scripted"))
def test_scripted_modules_are_replicated(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology, tolerance=checks.LAYER)


@clause("replicate.script.traced")
@FEWER_EXAMPLES
@given(call=script_calls("traced"))
def test_traced_modules_are_replicated(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology, tolerance=checks.LAYER)


@clause("replicate.script.below-python")
@FEWER_EXAMPLES
@given(call=script_calls("below_python"))
def test_python_modules_may_have_script_children(target, baselines, topology, call):
    checks.agree(call, target, baselines, topology, tolerance=checks.LAYER)


@clause("replicate.script.python-child")
@pytest.mark.parametrize("parent", [_identity, nn.Sequential], ids=["bare", "in-sequential"])
@pytest.mark.parametrize("count", [0, 2], ids="devices={}".format)
def test_a_python_child_of_a_script_module_is_refused(target, topology, parent, count):
    def replicate_unfinished(module):
        # A script module has a Python child only during its constructor.
        with pytest.raises(RuntimeError) as caught:
            target.replicate.replicate(parent(module), topology.take(count))
        checks.same(str(caught.value), PYTHON_CHILD_TEXT)

    PartlyBuiltScript(replicate_unfinished)


@clause("replicate.script.without-jit")
def test_without_torchscript_a_module_with_a_python_child_is_replicated(target, topology):
    checks.same(count_replicas(target, topology), 2)
