"""Specs of modules and packed sequences: shared layers are one object, and lengths."""

import torch
from hypothesis import given

from spec_tests.strategies.modules import Layer, ModuleSpec, TiedLinear, move
from spec_tests.strategies.packed_sequences import packed_specs, unpack


def test_tied_weights_stay_one_parameter_where_new_parameters_are_made(topology, monkeypatch):
    monkeypatch.setattr(
        torch.__future__, "get_overwrite_module_params_on_conversion", lambda: True
    )
    net = ModuleSpec((Layer("linear"), TiedLinear(0))).build(topology, None)
    weight = net[0].weight
    assert move(net, torch.device("cpu"))[0].weight is net[1].weight is not weight


@given(spec=packed_specs())
def test_packed_sequences_have_the_lengths_of_the_spec(topology, spec):
    packed = spec.build(topology)
    assert [len(sequence) for sequence in unpack(packed)] == list(spec.lengths)
    assert (packed.sorted_indices is None) == spec.is_sorted
