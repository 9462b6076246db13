"""impl._replica.cache: what counts as a change, and which buffers are copied anew."""

import pytest
import torch
from torch import nn

import impl
from impl._replica import cache as replica_cache
from impl._replica.cache import Hold, _addresses, _buffers_at, _Original, _Replicas

CPUS = [torch.device("cpu")] * 2


class Filled(nn.Module):
    """Has a parameter, a buffer and a module of every given name.

    Args:
        names: What they are called.
    """

    def __init__(self, *names):
        super().__init__()
        for name in names:
            self.register_parameter(f"parameter_{name}", nn.Parameter(torch.ones(1)))
            self.register_buffer(f"buffer_{name}", torch.ones(1))
            self.add_module(f"module_{name}", nn.Identity())


def several():
    return nn.Sequential(Filled("a", "b"), Filled("c"))


KINDS = pytest.mark.parametrize("kind", ["parameter", "buffer", "module"])


def members(module, kind):
    return getattr(module, f"_{kind}s")


def rename(module, kind):
    members(module[0], kind)[f"{kind}_d"] = members(module[0], kind).pop(f"{kind}_b")
    return f"'0.{kind}_b', '0.{kind}_d'"


def move(module, kind):
    moved = f"{kind}_b"
    here, there = members(module[0], kind), members(module[1], kind)
    last = {moved: here.pop(moved), **there}
    there.clear()
    there.update(last)
    return f"'0.{moved}'"


def unset(module, kind):
    members(module[1], kind)[f"{kind}_c"] = None
    return f"'1.{kind}_c'"


@KINDS
@pytest.mark.parametrize("change", [rename, move, unset])
def test_other_members_are_refused_by_name(kind, change):
    module = several()
    original = _Original(module)
    original.check(module)
    names = change(module, kind)
    with pytest.raises(RuntimeError) as caught:
        original.check(module)
    assert str(caught.value).startswith(f"There are other {kind}s, {names}, since the replicas")


def test_an_original_that_has_not_changed_is_accepted():
    module = several().append(nn.Linear(1, 1, bias=False))
    original = _Original(module)
    module[0].buffer_a = torch.zeros(3)  # Values of buffers may change.
    original.check(module)


@pytest.mark.parametrize("then", [True, False], ids="then={}".format)
def test_another_mode_is_refused_by_name(then):
    module = several().train(then)
    original = _Original(module)
    module[1].train(not then)
    with pytest.raises(RuntimeError) as caught:
        original.check(module)
    call = "eval()" if then else "train()"
    assert str(caught.value).startswith(f"Module '1' has been switched to {call} since")


def test_a_changed_parameter_is_named_beside_one_whose_changes_are_not_counted():
    with torch.inference_mode():
        module = nn.Sequential(nn.Linear(1, 1))
    module.append(nn.Linear(1, 1))
    original = _Original(module)
    with torch.no_grad():
        module[1].bias.add_(1)
    with pytest.raises(RuntimeError, match=r"Parameter '1\.bias' has changed"):
        original.check(module)


class Held:
    """The replicas of a module with a buffer, and the copies that are made later."""

    def __init__(self, monkeypatch, module, targets):
        self.copied = []

        def note(tensors, devices):
            self.copied.append(list(tensors))
            return detached(tensors, devices)

        detached = replica_cache.detached_copies
        monkeypatch.setattr(replica_cache, "detached_copies", note)
        with torch.no_grad():
            replicas = impl.replicate(module, targets, detach=True)
            self.replicas = _Replicas([*module.named_modules()], replicas, targets)


@pytest.mark.usefixtures("grad_mode")
def test_each_change_of_a_buffer_is_copied_once(monkeypatch):
    with torch.inference_mode(mode=False):
        module = nn.Sequential(Filled("a"))
        held = Held(monkeypatch, module, CPUS)
    held.replicas.bring_up_to_date()
    assert held.copied == []
    module[0].buffer_a.add_(1)
    for _ in range(2):
        held.replicas.bring_up_to_date()
        assert held.copied == [[module[0].buffer_a]]
        assert [each[0].buffer_a.item() for each in held.replicas.all] == [2.0, 2.0]


@pytest.fixture(params=["no_grad", "inference_mode"])
def grad_mode(request):
    """The modes that held replicas may be used in."""
    with getattr(torch, request.param)():
        yield request.param


@pytest.mark.usefixtures("grad_mode")
@pytest.mark.parametrize("requires_grad", [False, True], ids="requires_grad={}".format)
def test_new_buffers_are_for_every_mode(monkeypatch, requires_grad):
    with torch.inference_mode(mode=False):
        module = Filled("a", "b")
        held = Held(monkeypatch, module, CPUS)
        module.buffer_a = torch.zeros(1, requires_grad=requires_grad)
        module.buffer_b = torch.zeros(3, requires_grad=requires_grad)
    held.replicas.bring_up_to_date()
    copies = [*held.replicas.all[1].buffers()]
    assert [it.is_inference() for it in copies] == [False] * 2
    assert [it.requires_grad for it in copies] == [False] * 2


def test_a_buffer_that_is_elsewhere_is_refused(topology, monkeypatch):
    topology.require(distinct=2)
    one, other = dict.fromkeys(topology.devices[:2])
    module = Filled("a").to(one)
    held = Held(monkeypatch, module, [one, other])
    module.buffer_a = module.buffer_a.to(other)
    with torch.no_grad(), pytest.raises(RuntimeError) as caught:
        held.replicas.bring_up_to_date()
    assert str(caught.value) == (
        f"module must have its parameters and buffers on device {one} (device_ids[0]) but found "
        f"one of them on device: {other}"
    )
    assert held.copied == []


def test_a_module_that_replicas_lack_has_no_buffers_there():
    module = nn.Sequential(Filled("a"))
    bare = _Replicas([*module.named_modules()], [nn.Sequential()], CPUS[:1])
    module[0].buffer_a = torch.zeros(1)
    with torch.no_grad():
        bare.bring_up_to_date()
    assert [*bare.all[0].buffers()] == []


class Own(nn.Module):
    """Sees to it itself how attributes are set."""

    def __setattr__(self, name, value):
        super().__setattr__(name, value)


def test_buffers_are_set_in_the_modules_own_way():
    plain, own = nn.Identity(), Own()
    assert _buffers_at(plain, "") is plain._buffers
    assert _buffers_at(nn.Sequential(plain), "0") is plain._buffers
    assert _buffers_at(own, "") is not own._buffers
    assert _buffers_at(nn.Sequential(), "0") is None


@pytest.mark.parametrize("dense", [0, 1])
@pytest.mark.parametrize("absent", [0, 1])
@pytest.mark.parametrize("sparse", [0, 1])
def test_only_dense_tensors_have_addresses(dense, absent, sparse):
    tensor = torch.ones(2)
    listed = [tensor] * dense + [None] * absent + [tensor.to_sparse()] * sparse
    assert _addresses(listed) == [tensor.data_ptr()] * dense + [None] * (absent + sparse)


def test_the_cpu_has_no_streams():
    assert replica_cache._streams_of(CPUS) == ()


def test_replicas_are_made_under_the_lock():
    module, hold, locked = nn.Identity(), Hold(CPUS), []

    def make():
        locked.append(hold._lock.locked())
        return [module] * 2

    with torch.no_grad():
        for _ in range(2):
            hold.replicas(module, CPUS, make)
    assert locked == [True]
    assert not hold._lock.locked()


def test_blocks_are_counted_under_the_lock(monkeypatch):
    locked = []

    class Noting(Hold):
        @property
        def blocks(self):
            return self.count

        @blocks.setter
        def blocks(self, count):
            self.count = count
            locked.append(replica_cache._lock.locked())

    monkeypatch.setattr(replica_cache, "Hold", Noting)
    with replica_cache.use_hold(nn.Identity(), CPUS):
        assert not replica_cache._lock.locked()
    assert locked == [True] * 3  # As it is made, entered and left.
