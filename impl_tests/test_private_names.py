"""Names that other packages import from torch.nn.parallel, and that no clause names."""

from impl import _functions, functions, scatter_gather


def test_names_of_other_modules_can_be_imported():
    assert _functions._get_stream is functions._get_stream
    assert scatter_gather.Gather is functions.Gather
    assert scatter_gather.Scatter is functions.Scatter
    assert scatter_gather._is_namedtuple is scatter_gather.is_namedtuple
