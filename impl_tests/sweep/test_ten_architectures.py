"""Ten architectures are equal in wrappers, also on devices of back ends."""

import pytest

import impl
from impl_tests.consumers.uses import VARIANTS, Variant
from impl_tests.sweep.architectures import make
from impl_tests.sweep.compare import judge

#: An encoder, a decoder, both, experts, a recurrence, images, sounds, detection, time series and
#: convolutions.
NAMES = [
    "transformers/bert",
    "transformers/llama",
    "transformers/t5",
    "transformers/mixtral",
    "transformers/rwkv",
    "transformers/vit",
    "transformers/wav2vec2",
    "transformers/detr",
    "transformers/patchtst",
    "transformers/resnet",
]


@pytest.mark.parametrize("name", NAMES)
def test_an_architecture_is_equal_in_wrappers(name, topology):
    devices = (str(topology.device(0)), str(topology.device(1)))
    on_devices = Variant(devices[0], impl.DataParallel, devices)
    variants = {"cpu": VARIANTS["cpu"], "devices": on_devices}
    assert judge(*make(name), variants) == {"cpu": "equal", "devices": "equal"}
