"""``generate`` of a module alone continues with the cache that a wrapper has joined."""

import pytest
import torch

import impl
from impl_tests.sweep.transformers_models import make

OPTIONS = {"do_sample": False, "min_new_tokens": 3, "max_new_tokens": 3}

#: A sliding window, a recurrence, both, indices of keys, compressed keys, and other attributes.
KINDS = ["mistral", "mamba", "zaya", "deepseek_v32", "deepseek_v4", "minimax"]


@pytest.mark.parametrize("kind", KINDS)
def test_generate_continues_with_a_joined_cache(kind, topology):
    from transformers import AutoModelForCausalLM

    module, inputs = make(kind)
    devices = [topology.device(0), topology.device(1)]
    alone = AutoModelForCausalLM.from_config(module.config).eval().to(devices[0])
    tokens = inputs["input_ids"].to(devices[0])
    wrapped = impl.DataParallel(alone, devices)
    expected = alone.generate(tokens, **OPTIONS, return_dict_in_generate=True)
    found = wrapped.call("generate", tokens, **OPTIONS, return_dict_in_generate=True)
    assert torch.equal(found.sequences, expected.sequences)
    both = [
        alone.generate(each.sequences, **OPTIONS, cache=each.cache) for each in (found, expected)
    ]
    assert torch.equal(*both)
