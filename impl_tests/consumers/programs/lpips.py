"""lpips: its ``Trainer``, which wraps a perceptual metric to learn people's judgements."""

import lpips
import torch

from impl_tests.consumers.record import Record, make_record


def train() -> Record:
    """Train for three steps; the last batch has fewer rows."""
    torch.manual_seed(0)
    trainer = lpips.Trainer()
    trainer.initialize(
        net="squeeze", pnet_rand=True, pnet_tune=True, is_train=True, use_gpu=True, gpu_ids=[0, 1]
    )
    losses = []
    for rows in (4, 4, 3):
        images = {name: torch.rand(rows, 3, 64, 64) * 2 - 1 for name in ("ref", "p0", "p1")}
        trainer.set_input({**images, "judge": torch.rand(rows, 1, 1, 1)})
        trainer.optimize_parameters()
        losses.append(trainer.get_current_errors()["loss_total"])
    return make_record(losses, trainer.net.module, type(trainer.net))
