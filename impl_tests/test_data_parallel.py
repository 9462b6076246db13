"""impl.data_parallel: attributes, outputs, overridden steps, one device, traces and scripts."""

import copy
import inspect
import pickle
import sys
import warnings
import weakref
from functools import partial

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import nn
from torch.autograd.forward_ad import dual_level, make_dual
from torch.func import functional_call

import impl
from impl import DataParallel, DataParallelWithLoss, Whole, data_parallel
from spec_tests.harness.compare import checks

#: The module ``impl.data_parallel``. The attribute ``data_parallel`` of impl is the function.
MODULE = sys.modules["impl.data_parallel"]


class ReturnArguments(nn.Module):
    """A module that returns its arguments."""

    def forward(self, *inputs, **kwargs):
        return inputs, kwargs


def test_forward_gets_the_value_inside_whole_without_an_accelerator(monkeypatch):
    monkeypatch.setattr(MODULE, "choose_devices", lambda *_: None)
    x = torch.ones(2)
    (found,), kwargs = DataParallel(ReturnArguments())(Whole(x), y=Whole(x))
    assert found is x
    assert kwargs["y"] is x


class ReferringModule(nn.Module):
    """A module that keeps weak references to its inputs."""

    def __init__(self):
        super().__init__()
        self.inputs = []

    def forward(self, x):
        self.inputs.append(weakref.ref(x))
        return 2 * x


def test_input_chunks_are_freed_before_outputs_are_gathered(topology):
    module, alive = ReferringModule(), []

    class Wrapper(DataParallel):
        def gather(self, outputs, output_device):
            alive.extend(reference() is not None for reference in module.inputs)
            return super().gather(outputs, output_device)

    with torch.no_grad():
        Wrapper(module, topology.take(2))(torch.ones(4))
    assert alive == [False, False]


def test_device_ids_may_be_an_iterator(topology):
    ordinals = [device.index for device in topology.take(2)]
    net = torch.nn.Linear(2, 2).to(topology.device(0))
    x = torch.ones(4, 2, device=topology.device(0))
    wrapper = DataParallel(net, iter(ordinals))
    assert wrapper.device_ids == ordinals
    assert torch.equal(wrapper(x), data_parallel(net, x, iter(ordinals)))


class Scriptable(impl.DataParallel):
    def forward(self, x):
        return self.module(x)


@pytest.mark.filterwarnings("ignore")  # TorchScript is deprecated, and warns of annotations.
def test_a_subclass_can_be_scripted(topology):
    net = nn.Linear(2, 1)
    scripted = torch.jit.script(Scriptable(net, topology.take(1)))
    x = torch.ones(3, 2, device=topology.device(0))
    assert torch.equal(scripted(x), net(x))


@pytest.mark.parametrize("kind", [DataParallel, partial(DataParallelWithLoss, criterion=len)])
def test_every_wrapper_that_ignores_its_devices_warns_at_its_line(monkeypatch, kind):
    monkeypatch.setattr(MODULE, "choose_devices", lambda *_: None)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        kind(ReturnArguments())
        assert caught == []
        kind(ReturnArguments(), device_ids=[0, 1])
        line = inspect.currentframe().f_lineno - 1
        kind(ReturnArguments(), device_ids=[0, 1])
    assert [(each.filename, each.lineno) for each in caught] == [
        (__file__, line),
        (__file__, line + 2),
    ]
    assert all(str(each.message).startswith("device_ids is ignored") for each in caught)


class ScaledLinear(nn.Module):
    """A linear layer with a buffer."""

    def __init__(self):
        super().__init__()
        self.linear, self.scale = nn.Linear(2, 2), nn.Buffer(torch.ones(2))

    def forward(self, x, shift=None):
        return self.linear(x) * self.scale + (0 if shift is None else shift)


def call_with_tangent(wrapper, place, x):
    """Call ``wrapper`` with a tangent of the argument or tensor ``place``."""

    def dual(tensor):
        return make_dual(tensor.detach(), torch.ones_like(tensor))

    if place == "input":
        return wrapper(dual(x))
    if place == "keyword":
        return wrapper(x, shift=dual(x))
    if place == "whole":
        return wrapper(x, shift=Whole(dual(x[0])))
    tensors = {place: dual(wrapper.get_parameter(place) if "linear" in place else x[0])}
    return functional_call(wrapper, tensors, (x,))


# PyTorch scripts the decompositions of forward-mode AD when it first needs them.
@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
@given(
    devices=st.sampled_from([[0, 1], [0, 0, 0], ["cpu"] * 2]),
    place=st.sampled_from(
        ["input", "keyword", "whole", "module.linear.weight", "module.linear.bias", "module.scale"]
    ),
    frozen=st.booleans(),
    with_grad=st.booleans(),
)
@example(devices=[0, 1], place="module.linear.weight", frozen=True, with_grad=True)
@example(devices=[0, 0, 0], place="whole", frozen=False, with_grad=False)
def test_a_tangent_of_forward_mode_ad_is_refused(topology, devices, place, frozen, with_grad):
    devices = devices if "cpu" in devices else topology.take(devices)
    net = ScaledLinear().to(devices[0]).requires_grad_(not frozen)
    x = torch.ones(6, 2, device=devices[0], requires_grad=True)
    with dual_level(), torch.set_grad_enabled(with_grad):
        with pytest.raises(NotImplementedError, match="forward-mode AD does not pass tangents"):
            call_with_tangent(DataParallel(net, devices), place, x)
        assert torch.allclose(DataParallel(net, devices)(x), net(x))


@pytest.mark.parametrize("devices", [[0, 1], ["cpu"] * 2, ["cpu"] * 3], ids=repr)
@pytest.mark.parametrize(
    ("module", "name"),
    [
        (lambda x: x, "function"),
        (nn.functional.relu, "function"),
        (nn.Linear(2, 2).forward, "method"),
        (partial(nn.functional.relu, inplace=True), "partial"),
        (torch.compile(lambda x: x, backend="eager"), "function"),
        (nn.Linear, "the class Linear"),
        ([nn.Linear(2, 2)], "list"),
        (3, "int"),
    ],
    ids=["lambda", "function", "method", "partial", "compiled", "class", "list", "int"],
)
def test_an_object_without_parameters_is_refused_by_several_devices(module, name, devices):
    with pytest.raises(TypeError, match=f"module must be a Module, not {name}"):
        DataParallel(module, devices)


@pytest.mark.parametrize("device_ids", [2, "cpu", torch.device("cpu")], ids=repr)
def test_one_device_instead_of_a_sequence_is_refused(device_ids):
    for call in (
        lambda: DataParallel(nn.Identity(), device_ids),
        lambda: data_parallel(nn.Identity(), torch.ones(2), device_ids),
    ):
        with pytest.raises(TypeError, match="device_ids must be a sequence of devices") as caught:
            call()
        assert str(caught.value).endswith(f"not {device_ids!r}")


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ({}, ""),
        ({"output_device": "cpu"}, ""),
        ({"dim": 1}, ", dim=1"),
        ({"chunk_sizes": [1, 2], "in_turn": True}, ", chunk_sizes=[1, 2], in_turn=True"),
    ],
    ids=repr,
)
def test_repr_shows_the_devices_and_arguments_that_are_not_the_defaults(options, shown):
    wrapper = DataParallel(nn.Identity(), ["cpu", "cpu"], **options)
    devices = "device_ids=[device(type='cpu'), device(type='cpu')]"
    assert wrapper.extra_repr() == devices + shown
    assert f"  {devices}{shown}\n" in repr(wrapper)


def test_repr_shows_another_output_device(topology):
    ordinal = topology.device(0).index
    wrapper = DataParallel(nn.Identity(), [ordinal] * 2, "cpu")
    assert wrapper.extra_repr() == (
        f"device_ids=[{ordinal}, {ordinal}], output_device=device(type='cpu')"
    )


def test_repr_of_a_wrapper_without_devices_is_complete(monkeypatch):
    monkeypatch.setattr(MODULE, "choose_devices", lambda *_: None)
    assert DataParallel(nn.Identity(), dim=1).extra_repr() == "device_ids=[]"


@pytest.mark.parametrize("in_turn", [False, True], ids="in_turn={}".format)
def test_error_of_batch_norm_has_a_note_with_the_shape_of_the_chunk(in_turn):
    wrapper = DataParallel(nn.BatchNorm1d(2), ["cpu", "cpu"], in_turn=in_turn)
    with pytest.raises(ValueError, match="in replica 1 on device cpu") as caught:
        wrapper(torch.randn(3, 2))
    (note,) = caught.value.__notes__
    assert note.startswith("Replica 1 got a tensor of shape (1, 2).")
    assert note not in str(caught.value)


@pytest.mark.parametrize("call", ["wrapper", "replicate"])
def test_a_replica_that_is_replicated_from_another_device_is_refused_with_a_note(topology, call):
    devices = topology.take(2)
    topology.require(distinct=2)

    class Replicating(nn.Linear):
        def forward(self, x):
            return impl.replicate(self, devices)[0].extra_repr()

    module = Replicating(2, 2) if call == "replicate" else DataParallel(nn.Linear(2, 2), devices)
    with pytest.raises(RuntimeError, match="in replica 1 on device") as caught:
        DataParallel(module.to(devices[0]), devices)(torch.ones(2, 2))
    assert caught.value.__notes__[-1].startswith(f"Replica 1 and its tensors are on {devices[1]}.")


def test_another_value_error_of_a_replica_has_no_note():
    wrapper = DataParallel(nn.BatchNorm1d(2), ["cpu", "cpu"])
    with pytest.raises(ValueError, match="expected 2D or 3D input") as caught:
        wrapper(torch.randn(3))
    assert not hasattr(caught.value, "__notes__")


@pytest.mark.parametrize(
    ("dtype", "autocast"),
    [(torch.float16, torch.bfloat16), (torch.bfloat16, torch.float16)],
    ids=str,
)
def test_a_half_module_runs_in_autocast_to_the_other_half_dtype(dtype, autocast):
    module = nn.Linear(2, 2).to(dtype)
    x = torch.ones(4, 2, dtype=dtype)
    with torch.autocast("cpu", autocast):
        found, expected = DataParallel(module, ["cpu", "cpu"])(x), module(x)
    torch.testing.assert_close(found, expected)


class Classifier(nn.Module):
    """A module with an attribute, a property, a method, a buffer and names of the wrapper."""

    classes = ("cat", "dog")
    dim = device_ids = src_device_obj = broken = _private = "of the module"

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self.register_buffer("scale", torch.ones(1))

    @property
    def width(self):
        """The number of features."""
        return self.layer.in_features

    def name_of(self, index):
        """Return the name of a class."""
        return self.classes[index]

    def forward(self, x):
        """Return the scores."""
        return self.layer(x) * self.scale

    def __deepcopy__(self, memo):
        """Return a copy."""
        return copy.copy(self)


class WithProperty(nn.Module):
    """The property of a subclass of a wrapper. It raises an AttributeError."""

    @property
    def broken(self):
        """Raise an error."""
        raise AttributeError("broken")


def wrap(topology, kind=impl.DataParallel):
    module = Classifier().to(topology.device(0))
    return kind(module, topology.take(2), module_attributes=True)


@pytest.mark.parametrize(
    "duplicate",
    [lambda wrapper: wrapper, copy.copy, lambda wrapper: pickle.loads(pickle.dumps(wrapper))],
    ids=["itself", "copy", "pickle"],
)
def test_public_names_are_read_from_the_module(topology, duplicate):
    wrapper = duplicate(wrap(topology))
    found = wrapper.classes, wrapper.width, wrapper.name_of(1), hasattr(wrapper, "missing")
    checks.same(found, (("cat", "dog"), 3, "dog", False))
    assert wrapper.layer is wrapper.module.layer
    assert wrapper.scale is wrapper.module.scale


def test_state_and_outputs_are_those_of_a_wrapper_without_the_option(topology):
    wrapper = wrap(topology)
    plain = impl.DataParallel(wrapper.module, topology.take(2))
    x = torch.ones(5, 3, device=topology.device(0))
    checks.same(list(wrapper.state_dict()), list(plain.state_dict()))
    checks.same(wrapper(x), plain(x))


def test_assignments_stay_on_the_wrapper(topology):
    wrapper = wrap(topology)
    wrapper.classes = ()
    checks.same((wrapper.classes, wrapper.module.classes), ((), ("cat", "dog")))


@pytest.mark.parametrize("name", ["device_ids", "dim", "src_device_obj"])
def test_own_attributes_are_not_read_from_the_module(topology, name):
    wrapper = wrap(topology)
    assert getattr(wrapper, name) != "of the module"
    delattr(wrapper, name)  # They are missing without an accelerator.
    assert not hasattr(wrapper, name)


def test_error_of_a_property_of_the_wrapper_is_raised(topology):
    kind = type("Parallel", (WithProperty, impl.DataParallel), {})
    assert not hasattr(wrap(topology, kind), "broken")


def test_private_names_are_not_read_from_the_module(topology):
    wrapper = wrap(topology)
    assert not hasattr(wrapper, "_private")
    assert type(copy.deepcopy(wrapper)) is type(wrapper)


def test_wrapper_without_a_module_raises_an_attribute_error():
    kind = impl.DataParallel
    wrapper = kind(nn.Identity(), module_attributes=True)
    del wrapper.module
    for empty in (wrapper, kind.__new__(kind)):
        assert not hasattr(empty, "classes")
        assert not hasattr(empty, "module")
