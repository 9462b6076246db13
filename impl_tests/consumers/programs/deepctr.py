"""deepctr-torch: a factorization machine, which ``fit`` wraps if ``gpus`` are given."""

import numpy as np
import torch
from deepctr_torch.inputs import DenseFeat, SparseFeat, get_feature_names
from deepctr_torch.models import DeepFM

from impl_tests.consumers.record import Record, make_record


def train() -> Record:
    """Train for three epochs; the batch size is four rows per device."""
    columns = [SparseFeat("user", 10, 4), SparseFeat("item", 10, 4), DenseFeat("price", 1)]
    draw = np.random.default_rng(0)
    values = {"user": draw.integers(0, 10, 32), "item": draw.integers(0, 10, 32)}
    data = {**values, "price": draw.random(32).astype("float32")}
    names = get_feature_names(columns)
    model = DeepFM(columns, columns, dnn_hidden_units=(8, 4), device="sim:0", gpus=[0, 1])
    model.compile("sgd", "binary_crossentropy", metrics=[])
    losses: list[float] = []
    for _ in range(3):
        history = model.fit(
            [data[name] for name in names],
            draw.integers(0, 2, 32).astype("float32"),
            batch_size=4,
            epochs=1,
            verbose=0,
            shuffle=False,
        )
        losses += history.history["loss"]
    return make_record(losses, model, torch.nn.DataParallel)
