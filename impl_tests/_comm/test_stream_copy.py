"""impl._comm.stream_copy: a chunk without a stream is copied on the stream of the one before."""

import pytest
import torch

from impl._comm.stream_copy import copy_chunks


class RecordingOutput:
    """An output on device 0 that records the current stream when it is written."""

    stream = None

    def get_device(self):
        return 0

    def copy_(self, chunk, *, non_blocking):
        self.stream = torch.accelerator.current_stream(0)


@pytest.mark.parametrize("missing", [None, "shorter list"])
def test_outputs_without_a_stream_are_written_on_the_stream_before(topology, missing):
    stream = torch.Stream(torch.device(topology.accelerator, 0))
    outputs = [RecordingOutput(), RecordingOutput()]
    chunks = [torch.ones(1)] * 2
    copy_chunks(chunks, outputs, [stream, None] if missing is None else [stream])
    assert [output.stream for output in outputs] == [stream, stream]
