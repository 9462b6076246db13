"""replicate: private names that other packages import."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from spec_tests import checks
from spec_tests.checks.refusals import refused
from spec_tests.machine.clauses import clause, error_of
from spec_tests.strategies.calls import DeviceAt, KeywordCall
from spec_tests.strategies.comm import REAL, dense
from spec_tests.strategies.compiled_modules import PartlyBuiltScript
from spec_tests.strategies.functions import broadcast_applies
from spec_tests.strategies.tensors import counting


def _copies(tensors, devices, detach=False):
    arguments = {"tensors": list(tensors), "devices": devices, "detach": detach}
    return KeywordCall("replicate._broadcast_coalesced_reshape", arguments)


@clause("replicate.broadcast-coalesced-reshape.copies")
@given(broadcast=broadcast_applies(dtype_groups=(REAL,)), detach=st.booleans())
def test_every_device_gets_a_list_of_all_tensors(target, baselines, topology, broadcast, detach):
    call = _copies(broadcast.tensors, *broadcast.settings, detach=detach)
    checks.agree(call, target, baselines, topology)


@clause("replicate.broadcast-coalesced-reshape.copies")
@pytest.mark.parametrize("detach", [False, True])
def test_complex_tensors_stay_complex(target, topology, detach):
    tensor = counting((2, 3), torch.complex64, topology.device(0))
    broadcast = target.replicate.private("_broadcast_coalesced_reshape")
    for (copy,) in broadcast([tensor], topology.take(3), detach):
        checks.same(copy, tensor)


@clause("replicate.broadcast-coalesced-reshape.copies")
@pytest.mark.parametrize("detach", [False, True])
def test_the_first_list_contains_the_inputs_themselves_only_with_detach(target, topology, detach):
    tensor = torch.ones(2, device=topology.device(0), requires_grad=True)
    broadcast = target.replicate.private("_broadcast_coalesced_reshape")
    ((first,), *rest) = broadcast([tensor], topology.take(2), detach)
    checks.same((first is tensor, first.data_ptr() == tensor.data_ptr()), (detach, True))
    checks.same([copy.requires_grad for (copy,) in rest], [not detach] * len(rest))


@clause("replicate.broadcast-coalesced-reshape.refuses-the-cpu")
def test_tensors_on_the_cpu_are_refused(target, topology):
    call = _copies([dense(slot=None)], [DeviceAt(0)])
    name = "replicate.broadcast-coalesced-reshape.refuses-the-cpu"
    refused(call, target, topology, error_of(name))


@clause("replicate.replicatable-module")
def test_a_script_module_with_a_python_child_is_not_replicatable_unless_it_is_in_the_memo(target):
    replicatable = target.replicate.private("_replicatable_module")

    def check(module):
        wrapped = nn.Sequential(module)
        calls = {
            "_replicatable_module(script)": ((module,), False),
            "_replicatable_module(wrapped)": ((wrapped,), False),
            "_replicatable_module(nested)": ((nn.Sequential(nn.Tanh(), wrapped),), False),
            "_replicatable_module(script, {script})": ((module, {module}), False),
            "_replicatable_module(wrapped, {script})": ((wrapped, {module}), True),
            "_replicatable_module(wrapped, {wrapped})": ((wrapped, {wrapped}), False),
            "_replicatable_module(outer, {wrapped})": ((nn.Sequential(wrapped), {wrapped}), True),
        }
        for call, (arguments, expected) in calls.items():
            checks.same(replicatable(*arguments), expected, call)

    PartlyBuiltScript(check)


@clause("replicate.replicatable-module")
@pytest.mark.filterwarnings("ignore:`torch.jit")
def test_modules_without_python_children_of_script_modules_are_replicatable(target):
    scripted = torch.jit.script(nn.Sequential(nn.Linear(2, 2)))
    replicatable = target.replicate.private("_replicatable_module")
    for module in (nn.Linear(2, 2), scripted, nn.Sequential(nn.Tanh(), scripted)):
        checks.same(replicatable(module), True, module)


@clause("replicate.replicatable-module")
def test_all_modules_of_the_tree_are_added_to_the_memo(target):
    known = nn.Sequential(nn.Tanh())
    network, memo = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Tanh()), known), {known}
    target.replicate.private("_replicatable_module")(network, memo)
    added = [name for name, module in network.named_modules() if module in memo]
    checks.same(added, ["", "0", "1", "1.0", "2"])


@clause("replicate.script-names")
@pytest.mark.filterwarnings("ignore:`torch.jit")
def test_script_modules_and_their_methods_are_recognized(target):
    scripted = torch.jit.script(nn.Linear(2, 2))
    traced = torch.jit.trace(nn.Linear(2, 2), torch.ones(1, 2))
    modules = [scripted, traced, torch.jit.ScriptModule()]
    others = [nn.Linear(2, 2), nn.Sequential(scripted), nn.Linear(2, 2).forward]
    names = "_is_script_module", "_is_script_method"
    is_module, is_method = map(target.replicate.private, names)
    candidates = [*modules, scripted.forward, *others]
    checks.same([*map(is_module, candidates)], [True] * 3 + [False] * 4)
    checks.same([*map(is_method, candidates)], [False] * 3 + [True] + [False] * 3)


@clause("replicate.script-names")
def test_new_script_modules_are_empty(target):
    first, second = (target.replicate.private("_init_script_module")() for _ in range(2))
    assert isinstance(first, torch.jit.ScriptModule)
    assert first is not second
    checks.same([*first.modules()], [first])
    assert not first.state_dict()


@clause("replicate.script-names")
@pytest.mark.parametrize("enabled", [True, False])
def test_is_jit_enabled_returns_whether_torchscript_is_enabled(target, monkeypatch, enabled):
    monkeypatch.setattr(torch.jit._state._enabled, "enabled", enabled)
    assert bool(target.replicate.private("_is_jit_enabled")()) is enabled
