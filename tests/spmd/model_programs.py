"""Run by test_models.py with CPU_NUM_DEVICES=n: models that are split by sequence, by experts, by
columns and rows, and by batch train as on one device. Prints a dictionary of the checks' failures.

In float64: AdamW makes steps of one size even of gradients that are nothing but rounding, as those
of the keys' bias are.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import mesh_programs
import models
import split_gpt2
import torch
from mesh_programs import check_training, grid, mark_all, mesh_of, shapes_of
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard

import torch_xla.distributed.spmd as xs
import torch_xla.runtime as xr


class Experts(nn.Module):
    """Mixtral's: each token goes to two experts of eight, by its router's weights."""

    def __init__(self, width: int = 16, hidden: int = 24, count: int = 8) -> None:
        super().__init__()
        self.router = nn.Linear(width, count, bias=False)
        self.gate = nn.Parameter(torch.randn(count, width, hidden) * 0.2)
        self.up = nn.Parameter(torch.randn(count, width, hidden) * 0.2)
        self.down = nn.Parameter(torch.randn(count, hidden, width) * 0.2)

    def forward(self, x: Tensor) -> Tensor:
        weights, chosen = self.router(x).softmax(-1).topk(2, dim=-1)
        weights = weights / weights.sum(-1, keepdim=True)
        mixture = torch.zeros_like(x[..., :1]).expand(*x.shape[:-1], self.gate.shape[0])
        mixture = mixture.scatter(-1, chosen, weights)
        y = nn.functional.silu(torch.einsum("bsd,edh->besh", x, self.gate))
        y = y * torch.einsum("bsd,edh->besh", x, self.up)
        return torch.einsum("besh,ehd,bse->bsd", y, self.down, mixture)


class Mixture(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(32, 16)
        self.norm = nn.RMSNorm(16)
        self.experts = Experts()
        self.head = nn.Linear(16, 32, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        return self.head(x + self.experts(self.norm(x)))


class ViT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 16, 4, 4)
        self.places = nn.Parameter(torch.randn(1, 16, 16) * 0.1)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.head = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2) + self.places
        return self.head(self.layer(x).mean(1))


def texts(num_batches: int = 3) -> list[tuple[Tensor, Tensor]]:
    tokens = [torch.randint(0, 32, (8, 9)) for _ in range(num_batches)]
    return [(t[:, :-1].contiguous(), t[:, 1:].contiguous()) for t in tokens]


def images(channels: int, size: int, num_batches: int = 3) -> list[tuple[Tensor, Tensor]]:
    return [
        (torch.randn(8, channels, size, size).double(), torch.randint(0, 10, (8,)))
        for _ in range(num_batches)
    ]


def a_mixture_split_by_experts() -> None:
    def mark(model: Any, mesh: xs.Mesh) -> None:
        for weight in (model.experts.gate, model.experts.up, model.experts.down):
            xs.mark_sharding(weight, mesh, ("model", None, None))

    trained: Any = check_training(Mixture().double(), texts(), grid(), mark)
    assert shapes_of(trained.experts.gate) == {(4, 16, 24)}
    mesh = mesh_of(1, mesh_programs.count())
    trained = check_training(Mixture().double(), texts(), mesh, mark)
    assert shapes_of(trained.experts.down) == {(8 // mesh_programs.count(), 24, 16)}


def a_transformer_split_by_sequence() -> None:
    def mark(model: Any, mesh: xs.Mesh) -> None:
        def split(module: nn.Module, args: Any, out: Tensor) -> Tensor:
            return xs.mark_sharding_with_gradients(out, mesh, ("data", "model", None))

        for block in model.blocks:
            block.register_forward_hook(split)

    config = models.TransformerConfig(
        num_layers=2, width=16, num_heads=2, vocabulary=32, max_length=8
    )
    check_training(models.GPT2(config).double(), texts(), grid(), mark)


def a_vit_split_by_columns_and_rows() -> None:
    def mark(model: Any, mesh: xs.Mesh) -> None:
        xs.mark_sharding(model.layer.linear1.weight, mesh, ("model", None))
        xs.mark_sharding(model.layer.linear1.bias, mesh, ("model",))
        xs.mark_sharding(model.layer.linear2.weight, mesh, (None, "model"))
        xs.mark_sharding(model.layer.self_attn.out_proj.weight, mesh, (None, "model"))

    check_training(ViT().double(), images(3, 16), grid(), mark)


def a_cnn_split_by_batch() -> None:
    mesh = mesh_of(mesh_programs.count())
    check_training(models.MnistCNN((4, 8)).double(), images(1, 28), mesh, lambda model, where: None)


def a_cnn_split_by_channels() -> None:
    check_training(models.MnistCNN((8, 8)).double(), images(1, 28), grid(), mark_channels)


def mark_channels(model: Any, mesh: xs.Mesh) -> None:
    xs.mark_sharding(model.conv1.weight, mesh, ("model", None, None, None))
    xs.mark_sharding(model.conv2.weight, mesh, (None, "model", None, None))
    mark_all("model")(model.fc1, mesh)


def gpt2(seed: int = 6) -> models.GPT2:
    config = models.TransformerConfig(
        num_layers=2, width=16, num_heads=8, vocabulary=32, max_length=8
    )
    torch.manual_seed(seed)
    return split_gpt2.by_heads(models.GPT2(config).double())


def a_transformer_split_by_heads() -> None:
    mesh = mesh_of(1, mesh_programs.count())
    trained: Any = check_training(gpt2(), texts(), mesh, mark_heads)
    assert shapes_of(trained.tokens.weight) == {(32 // mesh_programs.count(), 16)}


def a_transformer_split_by_heads_and_batch() -> None:
    check_training(gpt2(), texts(), grid(), mark_heads)


def mark_heads(model: Any, mesh: xs.Mesh) -> None:
    split_gpt2.mark_tensor_parallel(model, mesh, "model")


def a_transformer_split_by_batch() -> None:
    check_training(gpt2(), texts(), mesh_of(mesh_programs.count()), nothing)


def transformers_fully_sharded() -> None:
    """By layers, of which each is gathered as a whole, and as XLA sees fit."""

    def by_layers(model: Any, mesh: xs.Mesh) -> None:
        for module in (*model.blocks, model):
            fully_shard(module)

    for mark in (by_layers, mark_all("data")):
        check_training(gpt2(), texts(), mesh_of(mesh_programs.count()), mark)


def others_fully_sharded_and_by_batch() -> None:
    mesh = mesh_of(mesh_programs.count())
    for mark in (nothing, mark_all("data")):
        check_training(Mixture().double(), texts(), mesh, mark)
        check_training(ViT().double(), images(3, 16), mesh, mark)
        check_training(models.MnistCNN((8, 8)).double(), images(1, 28), mesh, mark)


def nothing(model: nn.Module, mesh: xs.Mesh) -> None:
    """The batch alone is split."""


CHECKS = [
    a_mixture_split_by_experts,
    a_transformer_split_by_sequence,
    a_vit_split_by_columns_and_rows,
    a_cnn_split_by_batch,
    a_cnn_split_by_channels,
    a_transformer_split_by_heads_and_batch,
]
# Of `make conformance`.
FURTHER = [
    a_transformer_split_by_heads,
    a_transformer_split_by_batch,
    transformers_fully_sharded,
    others_fully_sharded_and_by_batch,
]

if __name__ == "__main__":
    xr.use_spmd()
    checks = [*CHECKS, *FURTHER]
    print(json.dumps({"failures": mesh_programs.failures_of(checks, sys.argv[2:])}))
