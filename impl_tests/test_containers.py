"""impl._containers: dataclasses, and objects of classes registered with ``torch.utils._pytree``.

One of the classes is a stand-in for that of the package tensordict.
"""

import copy
import dataclasses
from collections import deque
from collections.abc import Mapping

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import nn
from torch.utils import _pytree

from impl import DataParallel, SplitAlong, Whole, gather, scatter
from spec_tests import checks
from spec_tests.strategies.small_modules import Calls


class Cache:
    """Keys of earlier tokens, one tensor a layer. It is false if it is empty."""

    def __init__(self, keys=()):
        self.keys = list(keys)

    def __len__(self):
        return len(self.keys)

    def update(self, keys, layer):
        """Add the keys of a token to a layer; return those of all tokens."""
        if layer == len(self.keys):
            self.keys.append(keys)
        else:
            self.keys[layer] = torch.cat([self.keys[layer], keys], 1)
        return self.keys[layer]


class Table(Mapping):
    """A mapping whose class is not called with a dictionary."""

    def __init__(self, name, **columns):
        self.name, self.columns = name, columns

    def __getitem__(self, key):
        return self.columns[key]

    def __iter__(self):
        return iter(self.columns)

    def __len__(self):
        return len(self.columns)


@dataclasses.dataclass
class State:
    hidden: object
    count: int = dataclasses.field(init=False)

    def __post_init__(self):
        self.count = 1


class Setting:
    def __eq__(self, other):
        return self is other

    __hash__ = object.__hash__


class Fragile:
    def __init__(self, tensor):
        self.tensor = tensor


def fail(*_):
    raise KeyError("unflatten")


_pytree.register_pytree_node(
    Cache, lambda cache: ([cache.keys], None), lambda parts, _: Cache(*parts)
)
_pytree.register_pytree_node(
    Table,
    lambda table: (list(table.columns.values()), (table.name, [*table.columns])),
    lambda parts, context: Table(context[0], **dict(zip(context[1], parts, strict=True))),
)
_pytree.register_pytree_node(
    State, lambda state: ([state.hidden], None), lambda parts, _: State(*parts)
)
_pytree.register_pytree_node(Fragile, lambda value: ([value.tensor], None), fail)
_pytree.register_constant(Setting)

#: How a call passes its cache.
PLACES = {
    "argument": lambda x, cache: ((x, cache), {}),
    "keyword": lambda x, cache: ((x,), {"past": cache}),
    "list": lambda x, cache: ((x, [cache]), {}),
    "dictionary": lambda x, cache: ((x,), {"past": {"cache": cache}}),
    "registered object": lambda x, cache: ((x, Table("past", cache=cache)), {}),
}
#: Lists of indices into the devices of the topology; None is the CPU.
SLOTS = st.sampled_from([[0, 1], [0, 1, 2], [0, 0], [None, None], [None] * 3])


class Decoder(nn.Module):
    """Layers that add their keys to a cache and read all keys in it."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(2))

    def forward(self, x, past):
        while not isinstance(past, Cache):
            past = next(iter(past.values() if isinstance(past, Mapping) else past))
        for index, layer in enumerate(self.layers):
            x = past.update(layer(x), index).sum(1, keepdim=True)
        return x, past


def run(module, x, filled, place):
    """Return the outputs for two tokens, the cache's keys, and the gradient of ``x``."""
    x = x.detach().requires_grad_()
    cache = Cache([x * scale for scale in (2, 3)[:filled]])
    args, kwargs = PLACES[place](x, cache)
    first, cache = module(*args, **kwargs)
    args, kwargs = PLACES[place](x + 1, cache)
    second, cache = module(*args, **kwargs)
    sum(each.square().sum() for each in (first, second, *cache.keys)).backward()
    return [each.detach().cpu() for each in (first, second, *cache.keys, x.grad)]


@given(
    slots=SLOTS,
    rows=st.integers(2, 7),
    filled=st.integers(0, 2),
    place=st.sampled_from([*PLACES]),
)
@example(slots=[None, None], rows=4, filled=0, place="keyword")
@example(slots=[0, 1], rows=4, filled=0, place="keyword")
def test_every_replica_has_its_own_rows_of_a_cache(topology, slots, rows, filled, place):
    devices = topology.take(slots)
    net = Decoder().to(devices[0])
    x = torch.randn(rows, 1, 2, device=devices[0])
    found = run(DataParallel(net, devices), x, filled, place)
    for each, expected in zip(found, run(copy.deepcopy(net), x, filled, place), strict=True):
        checks.same(each, expected, place, tolerance=checks.LAYER)


@pytest.mark.parametrize("filled", [0, 2])
@pytest.mark.parametrize("slots", [[0, 1], [None] * 3, [0], [None]], ids=str)
def test_only_a_module_on_one_device_fills_the_cache_of_the_caller(topology, slots, filled):
    devices = topology.take(slots)
    x = torch.ones(4, 1, 2, device=devices[0])
    keys = [x] * filled
    cache = Cache(keys)
    _, returned = DataParallel(Decoder().to(devices[0]), devices)(x, cache)
    assert (returned is cache) == (len(slots) == 1)
    assert returned is cache or cache.keys == keys
    assert [len(each) for each in returned.keys] == [4, 4]


@pytest.mark.parametrize("filled", [0, 2])
def test_a_cache_of_transformers_that_is_not_registered_is_refused(topology, filled):
    base = type("Cache", (Cache,), {"__module__": "transformers.cache_utils"})
    cache, x = type("DynamicCache", (base,), {})(), torch.ones(4, 1, 2)
    cache.keys += [x] * filled
    for devices in (["cpu"] * 2, topology.take(3)):
        wrapper = DataParallel(Decoder().to(devices[0]), devices)
        with pytest.raises(TypeError, match=r"kwargs\['past'\]: a DynamicCache .*_pytree"):
            wrapper(x, past=cache)
    assert DataParallel(Decoder(), ["cpu"])(x, past=cache)[1] is cache


def test_a_cache_on_another_device_is_moved(topology):
    x = torch.ones(4, 1, 2)
    _, cache = DataParallel(Decoder(), topology.take(1))(x, Cache([x, x]))
    assert {each.device for each in cache.keys} == {topology.device(0)}


def test_registration_takes_precedence_over_mappings_and_dataclasses(topology):
    table = Table("rows", x=torch.arange(4.0), y=State(torch.arange(4)))
    chunks = [chunk for (chunk,) in scatter([table], topology.take(2))]
    assert [chunk.name for chunk in chunks] == ["rows"] * 2
    assert [chunk["y"].hidden.tolist() for chunk in chunks] == [[0, 1], [2, 3]]
    joined = gather(chunks, topology.device(0))
    assert (joined.name, joined["x"].tolist()) == ("rows", [0, 1, 2, 3])
    assert joined["y"].hidden.tolist() == [0, 1, 2, 3]


def test_tensors_of_markers_in_a_registered_object_are_copied_or_split(topology):
    x = torch.arange(4.0).view(2, 2)
    table = Table("marked", whole=Whole(x), columns=SplitAlong(x, 1))
    chunks = scatter(table, topology.take(2))
    assert [chunk["whole"].tolist() for chunk in chunks] == [x.tolist()] * 2
    assert [chunk["columns"].tolist() for chunk in chunks] == [[[0], [2]], [[1], [3]]]


def test_constants_and_empty_containers_of_python_are_passed_by_reference(topology):
    for value in (Setting(), deque()):
        assert all(chunk is value for (chunk,) in scatter([value], topology.take(2)))


def test_an_object_that_cannot_be_unflattened_is_refused_by_its_path(topology):
    inputs = [{"x": Fragile(torch.ones(2))}]
    with pytest.raises(TypeError, match=r"inputs\[0\]\['x'\]: a Fragile cannot be rebuilt"):
        scatter(inputs, topology.take(2))


@pytest.mark.parametrize(
    ("first", "second", "text"),
    [
        (Table("a", x=1), Table("b", x=1), "its context differs in replica 1"),
        (Cache(), Table("a"), "replica 1 returned a Table"),
        (Table("a", x=1), Table("a", x=1, y=2), "it has 2 parts in replica 1"),
    ],
    ids=["contexts", "classes", "parts"],
)
def test_objects_that_differ_become_a_list_with_a_warning(topology, first, second, text):
    with pytest.warns(UserWarning, match=text):
        found = gather([first, second], topology.device(0))
    assert found == [first, second]


class OwnCopy:
    """A class whose objects are their own copies."""

    def __copy__(self):
        return self


OWN_COPIES = {
    "dict": type("OwnDict", (OwnCopy, dict), {}),
    "list": type("OwnList", (OwnCopy, list), {}),
    "dataclass": dataclasses.make_dataclass("OwnState", ["a"], bases=(OwnCopy,)),
}


@pytest.mark.parametrize("kind", OWN_COPIES)
def test_a_container_that_is_its_own_copy_is_split(kind):
    rows = torch.arange(4.0)
    make = OWN_COPIES[kind]
    whole = make({"a": rows}) if kind == "dict" else make([rows]) if kind == "list" else make(rows)
    part_of = {"dict": lambda x: x["a"], "list": lambda x: x[0], "dataclass": lambda x: x.a}[kind]
    chunks = scatter(whole, ["cpu", "cpu"])
    assert [part_of(chunk).tolist() for chunk in chunks] == [[0.0, 1.0], [2.0, 3.0]]
    assert part_of(whole) is rows
    assert {type(chunk) for chunk in chunks} == {make}


@dataclasses.dataclass
class Normalized:
    """Rows that are divided by the largest one."""

    rows: torch.Tensor

    def __post_init__(self):
        self.rows = self.rows / self.rows.max()


def test_chunks_that_their_class_would_change_are_those_of_the_whole():
    whole = Normalized(torch.tensor([1.0, 2.0, 3.0, 4.0]))
    whole.label = "a"
    chunks = scatter(whole, ["cpu", "cpu"])
    assert [chunk.rows.tolist() for chunk in chunks] == [[0.25, 0.5], [0.75, 1.0]]
    assert [chunk.label for chunk in chunks] == ["a", "a"]


@dataclasses.dataclass
class Grouped:
    """Groups of four rows."""

    rows: torch.Tensor

    def __post_init__(self):
        self.count, self.size, self.doubled = len(self.rows), 4, self.rows * 2
        if self.count % self.size:
            raise ValueError("rows must be whole groups")


def test_chunks_that_their_class_refuses_have_no_attributes_that_depend_on_the_rows():
    chunks = scatter(Grouped(torch.ones(12)), ["cpu", "cpu"])
    assert [[*vars(chunk)] for chunk in chunks] == [["rows", "size"]] * 2


def test_outputs_of_dataclasses_with_other_fields_are_refused():
    one = dataclasses.make_dataclass("One", ["rows"])
    more = dataclasses.make_dataclass("More", ["label"], bases=(one,))
    with pytest.raises(ValueError, match="must have the same fields"):
        gather([one(torch.ones(1)), more(torch.ones(1), "a")], "cpu")


class TensorDict:
    """The parts of ``tensordict.TensorDict`` that impl uses, for one batch dimension.

    Its operators also split and join ``labels``, one for each row.
    """

    batch_size: torch.Size = torch.Size()

    def __init__(self, tensors, batch_size, labels=(), device=None):
        self.tensors, self.labels, self.device = tensors, list(labels), device
        self.batch_size = torch.Size(batch_size)
        assert all(each.shape[: len(batch_size)] == self.batch_size for each in tensors.values())

    def __bool__(self):
        raise RuntimeError("Converting a tensordict to boolean value is not permitted")

    def __getitem__(self, key):
        return self.tensors[key]

    def values(self, include_nested, leaves_only):
        return self.tensors.values() if include_nested and leaves_only else None

    def split(self, sizes, dim):
        parts = {name: each.split(sizes, dim) for name, each in self.tensors.items()}
        found = []
        for index, size in enumerate(sizes):
            tensors = {name: each[index] for name, each in parts.items()}
            labels = self.labels[sum(sizes[:index]) :][:size]
            found.append(TensorDict(tensors, [size], labels, self.device))
        return found

    def to(self, device):
        tensors = {name: each.to(device) for name, each in self.tensors.items()}
        return TensorDict(tensors, self.batch_size, self.labels, device)

    def clear_device_(self):
        self.device = None
        return self

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        assert function is torch.cat
        values, dim = args
        tensors = {
            name: torch.cat([each[name] for each in values], dim) for name in values[0].tensors
        }
        labels = [label for each in values for label in each.labels]
        return cls(tensors, [sum(each.batch_size[0] for each in values)], labels, values[0].device)


_pytree.register_pytree_node(
    TensorDict,
    lambda value: (
        list(value.tensors.values()),
        ([*value.tensors], value.batch_size, value.labels),
    ),
    lambda parts, context: TensorDict(dict(zip(context[0], parts, strict=True)), *context[1:]),
)


def scale(module, value):
    y = module.linear(value["x"])
    batch_size = y.shape[:1] if module.has_batch_size else ()
    device = y.device if module.has_device else None
    return TensorDict({"x": value["x"], "y": y}, batch_size, value.labels, device)


@given(
    slots=st.sampled_from([[0, 1], [0, 1, 2], [0, 0], [0], [None, None]]),
    rows=st.integers(2, 7),
    given_batch_size=st.booleans(),
    has_batch_size=st.booleans(),
    has_device=st.booleans(),
    on_cpu=st.booleans(),
)
@example(
    slots=[0, 1],
    rows=3,
    given_batch_size=True,
    has_batch_size=True,
    has_device=False,
    on_cpu=False,
)
def test_a_tensor_dict_is_split_and_joined_by_its_operators(
    topology, slots, rows, given_batch_size, has_batch_size, has_device, on_cpu
):
    devices = topology.take(slots)
    options = {"has_batch_size": has_batch_size, "has_device": has_device}
    net = Calls(scale, linear=nn.Linear(2, 2), **options).to(devices[0])
    x = torch.randn(rows, 2, device="cpu" if on_cpu else devices[0], requires_grad=True)
    labels = range(rows if given_batch_size and has_batch_size else 0)
    value = TensorDict({"x": x}, [rows] if given_batch_size else [], labels)
    steps = []
    for module, batch in ((DataParallel(net, devices), value), (net, value.to(devices[0]))):
        found = module(batch)
        gradients = torch.autograd.grad(found["y"].square().sum(), [x, *net.parameters()])
        steps.append(((found.batch_size, found.labels), (found["x"], found["y"], *gradients)))
    assert steps[0][0] == steps[1][0]
    for each, expected in zip(steps[0][1], steps[1][1], strict=True):
        checks.same(each, expected, value, tolerance=checks.LAYER)


def test_a_whole_tensor_dict_is_given_to_every_replica(topology):
    value = TensorDict({"x": torch.arange(4.0)}, [4], "abcd")
    for index, found in enumerate(scatter(Whole(value), topology.take(2))):
        assert found["x"].tolist() == [0, 1, 2, 3]
        assert found["x"].device == topology.device(index)
        assert (found.batch_size, found.labels) == ((4,), [*"abcd"])


@pytest.mark.parametrize("dim", [1, -2])
def test_a_dimension_that_the_batch_size_lacks_is_refused(topology, dim):
    value = TensorDict({"x": torch.ones(4, 2)}, [4])
    with pytest.raises(
        IndexError, match=rf"inputs\[0\] has the batch_size \[4\], but no dim {dim}"
    ):
        scatter([value], topology.take(2), dim)
