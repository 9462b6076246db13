"""transformers: its ``Trainer``, which uses DataParallel if there are several devices."""

import tempfile

import torch
import transformers
from torch.utils.data import Dataset

from impl_tests.consumers.record import Record, make_record


class Sentences(Dataset[dict[str, torch.Tensor]]):
    """A data set of random tokens, which are also the labels."""

    def __init__(self) -> None:
        self.tokens = torch.randint(0, 50, (24, 6))

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.tokens[index], "labels": self.tokens[index]}


def train() -> Record:
    """Train for six steps with clipped gradients, then evaluate."""
    transformers.set_seed(0)
    config = transformers.GPT2Config(
        vocab_size=50,
        n_positions=8,
        n_embd=16,
        n_layer=2,
        n_head=2,
        bos_token_id=0,
        eos_token_id=0,
    )
    config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = 0.0
    with tempfile.TemporaryDirectory() as folder:
        args = transformers.TrainingArguments(
            folder,
            per_device_train_batch_size=2,
            num_train_epochs=1,
            logging_steps=1,
            logging_nan_inf_filter=False,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
        )
        assert args.device == torch.device("sim:0")
        args._n_gpu = 2  # By itself, Trainer counts only CUDA devices.
        data = Sentences()
        model = transformers.GPT2LMHeadModel(config)
        trainer = transformers.Trainer(model, args, train_dataset=data, eval_dataset=data)
        trainer.train()
        losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
        norms = [entry["grad_norm"] for entry in trainer.state.log_history if "loss" in entry]
        losses += [*norms, trainer.evaluate()["eval_loss"]]
    return make_record(losses, model, type(trainer.model_wrapped))
