"""Run by test_exchanges.py, by torchrun and by `accelerate launch`: Hugging Face's Accelerator and
Trainer as they are."""

from __future__ import annotations

import sys
import tempfile

import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

import torch_xla.core.xla_model as xm


class Counting(Dataset[dict[str, Tensor]]):
    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        tokens = (torch.arange(8) + index) % 32
        return {"input_ids": tokens, "labels": tokens}


def check_alike(model: nn.Module) -> None:
    """Every replica has the same weights."""
    weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()]).cpu()
    (first, *others) = xm.mesh_reduce("weights", weights, list)
    assert others
    assert all(torch.equal(first, other) for other in others)


def by_accelerator() -> None:
    accelerator = Accelerator()
    assert accelerator.num_processes == 2 and accelerator.device.type == "xla"
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(TensorDataset(torch.arange(64.0).view(16, 4) / 64), batch_size=4)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    losses = []
    for _ in range(3):
        for (x,) in loader:
            optimizer.zero_grad()
            loss = model(x).square().mean()
            accelerator.backward(loss)
            optimizer.step()
        losses.append(accelerator.gather(loss.detach().view(1)).mean().item())
    assert losses[2] < losses[1] < losses[0]
    check_alike(model)


def by_trainer() -> None:
    config = GPT2Config(n_layer=1, n_head=2, n_embd=16, vocab_size=32, n_positions=16)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=4,
            num_train_epochs=2,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
        )
        model = GPT2LMHeadModel(config)
        result = Trainer(model=model, args=arguments, train_dataset=Counting()).train()
        assert arguments.world_size == 2 and result.global_step == 4
        check_alike(model)
        xm.rendezvous("trained")


def main() -> None:
    """What `accelerate launch --tpu` calls."""
    by_accelerator()
    xm.master_print("passed")
    sys.stdout.flush()


if __name__ == "__main__":
    by_trainer()
    main()
