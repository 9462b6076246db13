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


class Stored:
    """An object with attributes."""

    def __init__(self, **attributes):
        vars(self).update(attributes)

    def __iter__(self):
        return iter([self.layers[0].keys])  # As for caches, this is a part only.

    def __repr__(self):
        return f"{type(self).__name__}({vars(self)})"


def stored_class(name, base=Stored, package="cache_utils"):
    return type(name, (base,), {"__module__": f"transformers.{package}"})


Cache = stored_class("Cache")
Layer = stored_class("Layer", stored_class("CacheLayerMixin"))
Recurrence = stored_class("LinearAttentionCacheLayerMixin")
Indexed = stored_class("OneStaticIndexedLayer", Layer, "models.one")
Decoder = stored_class("OneRNNTDecoderCache", package="models.one")


def caches_of(rows):
    """Return a cache with three layers, and a cache that is a layer.

    The length of the first layer is not that of its keys, as in a sliding window.
    """
    layers = [
        Layer(keys=rows, values=rows + 1, length=9, window=torch.tensor(4), device=rows.device),
        Recurrence(conv_states={0: rows, 1: None}, recurrent_states={0: rows + 1}),
        Indexed(keys=rows, indexer_position_ids=rows.T[..., None], batch_size=len(rows)),
    ]
    layers[2].seqlen_offset = torch.tensor([4])
    return Cache(layers=layers), Decoder(cache=rows, hidden_state=rows.T, cell_state=None)


@pytest.mark.parametrize("rows", [7, 8])
@pytest.mark.parametrize("slot", [0, None])
def test_all_tensors_of_caches_are_joined(topology, rows, slot):
    tensor, target = torch.arange(2.0 * rows).view(rows, 2), topology.device(slot)
    chunks = [each.to(topology.device(0)) for each in (tensor[:4], tensor[4:])]
    outputs = [*map(caches_of, chunks)]
    before = repr(outputs)
    assert repr(gather(outputs, target)) == repr(caches_of(tensor.to(target)))
    assert repr(outputs) == before


def with_other_class(layer, chunk):
    if len(chunk) == 3:
        layer.__class__ = stored_class("Other", Layer)


#: Changes of a layer, and the warning.
NOT_JOINED = {
    "rows": (
        lambda layer, chunk: setattr(layer, "extra", chunk),
        "the batch dimension of Layer.extra is unknown",
    ),
    "length": (
        lambda layer, chunk: setattr(layer, "length", len(chunk)),
        "Layer.length differs in replica 1",
    ),
    "class": (with_other_class, "replica 1 returned a Other"),
}


@pytest.mark.parametrize(("change", "text"), NOT_JOINED.values(), ids=NOT_JOINED)
def test_caches_that_cannot_be_joined_whole_are_listed(change, text):
    chunks = torch.ones(7, 2).split([4, 3])
    caches = [caches_of(chunk)[0] for chunk in chunks]
    for cache, chunk in zip(caches, chunks, strict=True):
        change(cache.layers[0], chunk)
    with pytest.warns(UserWarning, match=text):
        found = gather([{"cache": cache, "x": cache.layers[0].keys} for cache in caches], "cpu")
    assert found["cache"] == caches
    assert len(found["x"]) == 7


def test_caches_are_listed_along_another_dimension():
    caches = [caches_of(chunk)[0] for chunk in torch.ones(2, 7).split([4, 3], 1)]
    with pytest.warns(UserWarning, match="joined along dim 0 only, not along dim 1"):
        assert gather(caches, "cpu", 1) == caches


def test_caches_with_other_numbers_of_layers_are_listed():
    caches = [caches_of(chunk)[0] for chunk in torch.ones(7, 2).split([4, 3])]
    caches[0].layers.append(caches[0].layers[0])
    with pytest.warns(UserWarning, match="be joined"):
        found = gather([{"cache": cache, "x": cache.layers[0].keys} for cache in caches], "cpu")
    assert found["cache"] == caches
    assert len(found["x"]) == 7
