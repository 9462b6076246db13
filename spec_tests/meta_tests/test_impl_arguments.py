"""impl._arguments: what a call means where nothing is split, on a machine of one device."""

import torch
from torch.nn.utils.rnn import pack_sequence

from impl import SplitAlong, Whole
from impl._arguments import unmarked


def test_markers_come_off_wherever_they_stand():
    x, y, packed = torch.ones(2), torch.ones(1, 2), pack_sequence([torch.ones(2)])
    [first], named = unmarked(([Whole(x)], {"y": SplitAlong(y, 1), "p": packed}))
    assert (first is x, named["y"] is y, named["p"].data is packed.data) == (True, True, True)


def test_what_has_no_marker_is_handed_on_as_it_is():
    given = {"x": [torch.ones(2), "text"]}
    assert unmarked(given) is given
