"""impl._collector: blocks that keep Python's collector away may overlap."""

import gc

import pytest

from impl._collector import use_paused_collector


@pytest.fixture(params=[True, False], ids="enabled={}".format)
def enabled(request):
    """Whether the collector is on when the first block begins; on again after the test."""
    (gc.enable if request.param else gc.disable)()
    yield request.param
    gc.enable()


def test_the_last_of_overlapping_blocks_restores_what_the_first_found(enabled):
    first, second = use_paused_collector(), use_paused_collector()
    seen = []
    for change in (first.__enter__, second.__enter__):
        change()
        seen.append(gc.isenabled())
    for block in (first, second):
        block.__exit__(None, None, None)
        seen.append(gc.isenabled())
    assert seen == [False, False, False, enabled]


def test_a_block_that_raises_ends(enabled):
    with pytest.raises(LookupError), use_paused_collector():
        raise LookupError
    assert gc.isenabled() == enabled
