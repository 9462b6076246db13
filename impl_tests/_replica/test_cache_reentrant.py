"""impl._replica.cache: a signal handler calls a wrapper while its replicas are built."""

import threading

import torch
from torch import nn

from impl import DataParallel


class CallsItself(DataParallel):
    """A wrapper that is called while it is called, as by a signal handler."""

    is_handled = False

    def replicate(self, module, device_ids):
        if not self.is_handled:
            self.is_handled = True
            self.inner = self(torch.ones(4, 2, device=self.src_device_obj))
        return super().replicate(module, device_ids)


def test_a_wrapper_may_be_called_while_its_replicas_are_built(topology):
    net = CallsItself(nn.Linear(2, 2).to(topology.device(0)), topology.take(2))
    x = torch.ones(4, 2, device=topology.device(0))
    outputs = []

    def run():
        with torch.no_grad(), net.hold():
            outputs.append(net(x))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(60)
    assert len(outputs) == 1
    torch.testing.assert_close(outputs[0], net.inner)
