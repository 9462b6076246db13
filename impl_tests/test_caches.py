"""impl._caches, and lists of rows: outputs whose parts do not all have the batch as dimension 0.

The classes of caches are stand-ins for those of transformers.
"""

import pytest
import torch

from impl import gather


class Cache:
    """A cache that yields keys and values only, and can be built from them."""

    __module__ = "transformers.cache_utils"

    def __init__(self, data):
        self.layers = [Layer(keys, values) for keys, values in data]

    def __iter__(self):
        return ((layer.keys, layer.values) for layer in self.layers)


class CacheLayerMixin:
    """The base class of layers."""

    __module__ = "transformers.cache_utils"


class Layer(CacheLayerMixin):
    """A layer whose length is not that of its keys, as in a sliding window."""

    def __init__(self, keys, values):
        self.keys, self.values = keys, values
        self.length, self.device = 1, keys.device
        self.window = torch.tensor(4)


class LinearAttentionCacheLayerMixin:
    """A layer without keys."""

    __module__ = "transformers.cache_utils"

    def __init__(self, rows):
        self.conv_states, self.recurrent_states = {0: rows, 1: None}, {0: rows + 1}


class OneStaticIndexedLayer(CacheLayerMixin):
    """A layer with a batch as dimension 1, a number of rows, and a count of tokens."""

    __module__ = "transformers.models.one"

    def __init__(self, rows):
        self.keys = rows
        self.indexer_position_ids, self.batch_size = rows.T[..., None], len(rows)
        self.seqlen_offset = torch.tensor([4], device=rows.device)
        self.device = rows.device


class OneRNNTDecoderCache:
    """A cache that is a layer, and has the batch as dimension 1 of a state."""

    __module__ = "transformers.models.one"

    def __init__(self, rows):
        self.cache, self.hidden_state, self.cell_state = rows, rows.T, None


def cache_of(rows):
    """Return a cache of which iterating yields a part only."""
    cache = Cache([(rows, rows + 1)])
    cache.layers[0].length = 9
    cache.layers.append(LinearAttentionCacheLayerMixin(rows))
    return cache


def split(topology, rows=7):
    tensor = torch.arange(2.0 * rows).view(rows, 2)
    return tensor, [each.to(topology.device(0)) for each in (tensor[:4], tensor[4:])]


@pytest.mark.parametrize("rows", [7, 8])
def test_all_tensors_of_a_cache_are_joined(topology, rows):
    tensor, chunks = split(topology, rows)
    outputs = [cache_of(chunk) for chunk in chunks]
    found = gather(outputs, topology.device(0))
    expected = cache_of(tensor.to(topology.device(0)))
    assert type(found) is Cache
    for name in ("keys", "values", "length", "window"):
        each, other = (getattr(cache.layers[0], name) for cache in (found, expected))
        assert torch.equal(torch.as_tensor(each), torch.as_tensor(other))
    assert torch.equal(found.layers[1].conv_states[0], expected.layers[1].conv_states[0])
    assert found.layers[1].conv_states[1] is None
    assert torch.equal(found.layers[1].recurrent_states[0], tensor.to(topology.device(0)) + 1)
    assert [len(cache.layers[0].keys) for cache in outputs] == [4, rows - 4]


@pytest.mark.parametrize("rows", [7, 8])
@pytest.mark.parametrize("target", [0, "cpu"])
def test_the_dimension_of_the_batch_depends_on_the_attribute(topology, rows, target):
    target = "cpu" if target == "cpu" else topology.device(0)
    tensor, chunks = split(topology, rows)
    layer, cache = gather(
        [(OneStaticIndexedLayer(chunk), OneRNNTDecoderCache(chunk)) for chunk in chunks], target
    )
    assert layer.batch_size == rows
    assert layer.device == layer.keys.device == torch.device(target)
    assert torch.equal(layer.indexer_position_ids.cpu(), tensor.T[..., None])
    assert layer.seqlen_offset.tolist() == [4]
    assert torch.equal(cache.hidden_state.cpu(), tensor.T)
    assert cache.cell_state is None


def with_other_rows(cache, chunk):
    cache.layers[0].extra = chunk


def with_other_length(cache, chunk):
    cache.layers[0].length = len(chunk)


def with_other_class(cache, chunk):
    if len(chunk) == 3:
        cache.layers[0].__class__ = type("Other", (Layer,), {})


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (with_other_rows, "the batch dimension of Layer.extra is unknown"),
        (with_other_length, "Layer.length differs in replica 1"),
        (with_other_class, "replica 1 returned a Other"),
    ],
)
def test_caches_that_cannot_be_joined_whole_are_listed(topology, change, text):
    _, chunks = split(topology)
    caches = [cache_of(chunk) for chunk in chunks]
    for cache, chunk in zip(caches, chunks, strict=True):
        change(cache, chunk)
    with pytest.warns(UserWarning, match=text):
        found = gather([{"cache": cache, "x": cache.layers[0].keys} for cache in caches], "cpu")
    assert found["cache"] == caches
    assert len(found["x"]) == 7


def test_caches_are_listed_along_another_dimension():
    caches = [cache_of(chunk) for chunk in torch.ones(2, 7).split([4, 3], 1)]
    with pytest.warns(UserWarning, match="joined along dim 0 only, not along dim 1"):
        assert gather(caches, "cpu", 1) == caches


class Pairs:
    """An iterable whose class makes only a part of its attributes from its members."""

    def __init__(self, members):
        self.members = list(members)

    def __iter__(self):
        return iter(self.members)


@pytest.mark.parametrize("name", ["rows", "count", "nested"])
def test_iterables_that_would_be_joined_in_part_are_listed(topology, name):
    outputs = []
    for chunk in split(topology)[1]:
        pairs = Pairs([chunk])
        pairs.members = [*pairs.members]
        setattr(pairs, name, {"rows": chunk, "count": 4, "nested": Pairs([chunk])}[name])
        outputs.append(pairs)
    with pytest.warns(UserWarning, match="does not make Pairs"):
        assert gather(outputs, "cpu") == outputs


@pytest.mark.parametrize("kind", [list, tuple])
@pytest.mark.parametrize("sizes", [(4, 3), (2, 2), (1, 1)])
def test_lists_of_one_tensor_for_each_row_are_appended(kind, sizes):
    outputs = [
        {"x": torch.ones(rows, 2), "images": kind([torch.full((5, 2), 1.0 * rows)] * rows)}
        for rows in sizes
    ]
    found = gather(outputs, "cpu")["images"]
    assert type(found) is kind
    expected = [1.0 * rows for rows in sizes for _ in range(rows)]
    assert [each.mean().item() for each in found] == expected


def test_lists_of_tensors_with_rows_are_joined_in_pairs():
    outputs = [{"x": torch.ones(2), "layers": [torch.ones(2, 3)] * 2} for _ in range(2)]
    assert [len(each) for each in gather(outputs, "cpu")["layers"]] == [4, 4]


@pytest.mark.parametrize("kind", [list, tuple, Pairs])
def test_the_error_for_lists_of_other_lengths_names_their_path(kind):
    outputs = [{"x": torch.ones(4), "boxes": kind([torch.ones(5)] * count)} for count in (2, 3)]
    with pytest.raises(ValueError, match="argument 2 is longer") as raised:
        gather(outputs, "cpu")
    assert "Lengths of output['boxes']: replica 0: 2, replica 1: 3" in raised.value.__notes__
