"""impl._model_outputs: outputs and caches whose tensors do not all have the batch as dimension 0.

The classes are stand-ins for those of transformers.
"""

from collections import OrderedDict

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from impl import DataParallel, gather


class ModelOutput(OrderedDict):
    """A dictionary whose items are attributes, too."""

    __module__ = "transformers.utils.generic"

    def __setitem__(self, name, value):
        super().__setitem__(name, value)
        self.__dict__[name] = value


def class_named(name):
    return type(name, (ModelOutput,), {"__module__": "transformers.modeling_outputs"})


Pooled = class_named("BaseModelOutputWithPooling")
Indicators = class_named("BaseModelOutputWithVisualIndicatorFeatures")
Detection = class_named("ConditionalDetrModelOutput")
Memories = class_named("XLNetModelOutput")
Codes = class_named("EncodecOutput")
Crossed = class_named("BridgeTowerModelOutput")
Multimodal = class_named("MultimodalBaseModelOutputWithPast")


def outputs_of(rows, images, patches, kind, packed):
    """Return the outputs of a model that computes each row alone.

    Args:
        rows: The batch, of shape (rows, 2).
        images: The number of images in each row.
        patches: The number of patches in each image.
        kind: The class of a sequence with one tensor for each image.
        packed: Whether the patches of all images are in one row.
    """
    pixels = rows.repeat_interleave(images * patches, 0)
    features = kind(pixels.split(patches))
    return {
        "logits": rows,
        "pooled": Pooled(last_hidden_state=pixels, pooler_output=features),
        "nested": Multimodal(
            last_hidden_state=rows,
            image_outputs=Pooled(
                last_hidden_state=pixels[None] if packed else pixels[:, None],
                pooler_output=features,
            ),
            video_outputs=None,
        ),
        "indicators": Indicators(
            last_hidden_state=rows, visual_indicator_features=torch.arange(6.0).view(3, 2)
        ),
        "detection": Detection(
            reference_points=rows.expand(patches, -1, -1), intermediate_hidden_states=None
        ),
        "memories": Memories(mems=kind([rows.expand(patches, -1, -1)] * 2)),
        "codes": Codes(audio_codes=rows.view(1, -1, 1, 2)),
        "crossed": Crossed(hidden_states=((rows,), (rows.expand(patches, -1, -1),), (rows,))),
    }


@given(
    sizes=st.lists(st.integers(1, 3), min_size=2, max_size=3),
    images=st.integers(1, 3),
    patches=st.integers(1, 6),
    kind=st.sampled_from([list, tuple]),
)
def test_outputs_of_transformers_are_those_of_the_whole_batch(sizes, images, patches, kind):
    batch = torch.arange(2.0 * sum(sizes)).view(-1, 2)
    # One image in one row may be packed or not.
    arguments = (images, patches, kind, max(sizes) * images > 1)
    found = gather([outputs_of(chunk, *arguments) for chunk in batch.split(sizes)], "cpu")
    expected = outputs_of(batch, *arguments)
    for name, value in expected.items():
        assert type(found[name]) is type(value)
        torch.testing.assert_close(found[name], value, rtol=0, atol=0, msg=name)
    assert found["pooled"].pooler_output is found["pooled"]["pooler_output"]
    assert type(found["pooled"].pooler_output) is kind


class PixtralVisionModel(nn.Module):
    """A stand-in for an encoder that packs all images of a batch into one row."""

    def forward(self, pixels, has_list):
        images = list(pixels) if has_list else pixels.flatten(0, 1)[None]
        return Pooled(last_hidden_state=pixels.flatten(0, 1)[None], pooler_output=images)


@given(rows=st.integers(1, 6), has_list=st.booleans())
def test_packed_images_of_an_encoder_are_joined(rows, has_list):
    encoder = PixtralVisionModel()
    pixels = torch.arange(6.0 * rows).view(rows, 3, 2)
    found = DataParallel(encoder, ["cpu", "cpu"])(pixels, has_list)
    torch.testing.assert_close(found, encoder(pixels, has_list), rtol=0, atol=0)


def test_outputs_along_another_dimension_have_no_declared_dimensions():
    rows = torch.arange(12.0).view(2, 3, 2)
    outputs = [Detection(reference_points=chunk, x=chunk) for chunk in rows.split([2, 1], 1)]
    found = gather(outputs, "cpu", 1)
    assert torch.equal(found.reference_points, rows)
    assert torch.equal(found.x, rows)


def test_a_list_of_a_class_elsewhere_is_joined_item_by_item():
    outputs = [{"pooler_output": [torch.ones(3, 2)] * 4, "x": torch.ones(2)} for _ in range(2)]
    assert [len(each) for each in gather(outputs, "cpu")["pooler_output"]] == [6] * 4


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
