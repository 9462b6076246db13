"""impl.extras.hold: detection of changes to the module, and updates of cached buffers."""

import threading

import pytest
import torch
from torch import nn

import impl
from impl import DataParallel
from impl.extras import hold as replica_cache
from impl.extras.hold import ReplicaCache, _Replicas
from impl.extras.module_state import ModuleSnapshot

CPUS = [torch.device("cpu")] * 2


class WithMembers(nn.Module):
    """A module with a parameter, a buffer and a child for each of ``names``."""

    def __init__(self, *names):
        super().__init__()
        for name in names:
            self.register_parameter(f"parameter_{name}", nn.Parameter(torch.ones(1)))
            self.register_buffer(f"buffer_{name}", torch.ones(1))
            self.add_module(f"module_{name}", nn.Identity())


def two_modules():
    return nn.Sequential(WithMembers("a", "b"), WithMembers("c"))


KINDS = pytest.mark.parametrize("kind", ["parameter", "buffer", "module"])


def members(module, kind):
    return getattr(module, f"_{kind}s")


# The functions below change a member of ``two_modules()``. They return the names that the error
# must contain.
def rename(module, kind):
    first = members(module[0], kind)
    first[f"{kind}_d"] = first.pop(f"{kind}_b")
    return f"'0.{kind}_b', '0.{kind}_d'"


def move(module, kind):
    moved = f"{kind}_b"
    source, target = members(module[0], kind), members(module[1], kind)
    after = {moved: source.pop(moved), **target}
    target.clear()
    target.update(after)
    return f"'0.{moved}'"


@KINDS
@pytest.mark.parametrize("change", [rename, move])
def test_change_of_members_raises_with_their_names(kind, change):
    module = two_modules()
    snapshot = ModuleSnapshot(module)
    snapshot.check(module)
    names = change(module, kind)
    with pytest.raises(RuntimeError) as caught:
        snapshot.check(module)
    assert str(caught.value).startswith(f"There are other {kind}s, {names}, since hold()")


def test_check_accepts_a_new_buffer_tensor():
    module = two_modules().append(nn.Linear(1, 1, bias=False))
    snapshot = ModuleSnapshot(module)
    module[0].buffer_a = torch.zeros(3)  # update_buffers copies it to the replicas.
    snapshot.check(module)


def test_changed_parameter_is_found_in_a_module_with_inference_tensors():
    with torch.inference_mode():
        module = nn.Sequential(nn.Linear(1, 1))
    module.append(nn.Linear(1, 1))
    snapshot = ModuleSnapshot(module)
    with torch.no_grad():
        module[1].bias.add_(1)
    with pytest.raises(RuntimeError, match=r"Parameter '1\.bias' has changed"):
        snapshot.check(module)


class BuiltReplicas:
    """The cached replicas of a module, and a list of the buffers that updates copy."""

    def __init__(self, monkeypatch, module, targets):
        self.copied = []

        def record(tensors, devices):
            self.copied.append(list(tensors))
            return detached(tensors, devices)

        detached = replica_cache.detached_copies
        monkeypatch.setattr(replica_cache, "detached_copies", record)
        with torch.no_grad():
            replicas = impl.replicate(module, targets, detach=True)
            self.replicas = _Replicas([*module.named_modules()], replicas, targets)


@pytest.mark.usefixtures("grad_mode")
def test_changed_buffer_is_copied_once(monkeypatch):
    with torch.inference_mode(mode=False):
        module = nn.Sequential(WithMembers("a")).eval()
        built = BuiltReplicas(monkeypatch, module, CPUS)
    built.replicas.update_buffers()
    assert built.copied == []
    module[0].buffer_a.add_(1)
    for _ in range(2):
        built.replicas.update_buffers()
        assert built.copied == [[module[0].buffer_a]]
        assert [r[0].buffer_a.item() for r in built.replicas.all] == [2.0, 2.0]


@pytest.fixture(params=["no_grad", "inference_mode"])
def grad_mode(request):
    """Run the test under no_grad and under inference_mode, which allow cached replicas."""
    with getattr(torch, request.param)():
        yield request.param


@pytest.mark.usefixtures("grad_mode")
@pytest.mark.parametrize("requires_grad", [False, True], ids="requires_grad={}".format)
def test_updated_buffers_are_not_inference_tensors(monkeypatch, requires_grad):
    with torch.inference_mode(mode=False):
        module = WithMembers("a", "b")
        built = BuiltReplicas(monkeypatch, module, CPUS)
        module.buffer_a = torch.zeros(1, requires_grad=requires_grad)
        module.buffer_b = torch.zeros(3, requires_grad=requires_grad)
    built.replicas.update_buffers()
    copies = [*built.replicas.all[1].buffers()]
    assert [copy.is_inference() for copy in copies] == [False] * 2
    assert [copy.requires_grad for copy in copies] == [False] * 2


def test_update_of_a_buffer_on_another_device_raises(topology, monkeypatch):
    topology.require(distinct=2)
    first, second = dict.fromkeys(topology.devices[:2])
    module = WithMembers("a").to(first)
    built = BuiltReplicas(monkeypatch, module, [first, second])
    module.buffer_a = module.buffer_a.to(second)
    with torch.no_grad(), pytest.raises(RuntimeError) as caught:
        built.replicas.update_buffers()
    assert str(caught.value) == (
        f"module must have its parameters and buffers on device {first} (device_ids[0]) but found "
        f"one of them on device: {second}"
    )
    assert built.copied == []


def test_buffer_that_a_replica_has_set_to_none_is_copied_again(monkeypatch):
    built = BuiltReplicas(monkeypatch, nn.Sequential(WithMembers("a")), CPUS)
    built.replicas.all[1][0].buffer_a = None
    with torch.no_grad():
        built.replicas.update_buffers()
    assert built.replicas.all[1][0].buffer_a.item() == 1


def test_update_ignores_buffers_of_modules_that_the_replica_lacks():
    module = nn.Sequential(WithMembers("a"))
    replicas = _Replicas([*module.named_modules()], [nn.Sequential()], CPUS[:1])
    module[0].buffer_a = torch.zeros(1)
    with torch.no_grad():
        replicas.update_buffers()
    assert [*replicas.all[0].buffers()] == []


def test_check_accepts_sparse_and_missing_parameters():
    module = nn.Module()
    module.register_parameter("missing", None)
    module.sparse = nn.Parameter(torch.eye(2).to_sparse())
    module.dense = nn.Parameter(torch.ones(1))
    snapshot = ModuleSnapshot(module)
    snapshot.check(module)
    module.dense.data = torch.ones(1)
    with pytest.raises(RuntimeError, match="Parameter 'dense' has changed"):
        snapshot.check(module)


def test_replicas_on_the_cpu_are_built_once():
    module, cache, builds = nn.Identity(), ReplicaCache(CPUS), []

    def build():
        builds.append(module)
        return [module] * 2

    with torch.no_grad():
        for _ in range(2):
            cache.replicas(module, CPUS, build)
    assert len(builds) == 1


class CallsItself(DataParallel):
    """A wrapper that is called while it is called, as by a signal handler."""

    is_handled = False

    def replicate(self, module, device_ids):
        if not self.is_handled:
            self.is_handled = True
            self.inner = self(torch.ones(4, 2, device=self.src_device_obj))
        return super().replicate(module, device_ids)


def test_a_wrapper_may_be_called_while_its_replicas_are_built(topology):
    net = CallsItself(nn.Linear(2, 2).to(topology.device(0)), topology.take(2))
    x = torch.ones(4, 2, device=topology.device(0))
    outputs = []

    def run():
        with torch.no_grad(), net.hold():
            outputs.append(net(x))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(60)
    assert len(outputs) == 1
    torch.testing.assert_close(outputs[0], net.inner)
