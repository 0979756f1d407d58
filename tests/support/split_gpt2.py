"""GPT-2 split over four devices in three ways, and what devices exchange in a training step: as a
compiled program has it, and on paper. Of `tests/spmd` and `benchmarks/spmd.py`.
"""

from __future__ import annotations

import math
import re

from models import GPT2, Attention
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard

import torch_xla.distributed.spmd as xs

WAYS = ("data", "fsdp", "tensor")
# Megatron's: what makes heads and hidden units is split by its results, what takes them by its
# operands.
_BY_RESULTS = ("qkv", "feed_forward.0", "tokens")
_BY_OPERANDS = ("out", "feed_forward.2")
_KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")
_COLLECTIVE = re.compile(rf"= (.*?) ({'|'.join(_KINDS)})(?:-start)?\(")
_TYPE = re.compile(r"([a-z]+)(\d*)\[([\d,]*)\]")


class AttentionByHeads(Attention):
    """With the rows of `qkv` in Megatron's order, so that parts of them are heads: all three
    vectors of the first head, then those of the second."""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        batch, length, width = x.shape
        by_heads = self.qkv(x).view(batch, length, self.num_heads, 3 * width // self.num_heads)
        q, k, v = by_heads.transpose(1, 2).chunk(3, dim=3)
        dropout = self.dropout if self.training else 0.0
        y = nn.functional.scaled_dot_product_attention(
            q, k, v, dropout_p=dropout, is_causal=self.is_causal
        )
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


def by_heads(model: GPT2) -> GPT2:
    """The model with heads that can be split, in place."""
    for block in model.blocks:
        block.attention.__class__ = AttentionByHeads
    return model


def place(way: str, model: GPT2, *batch: Tensor) -> None:
    """Say how a model and its batch lie."""
    mesh = xs.get_1d_mesh("all")
    for t in batch if way != "tensor" else ():
        xs.mark_sharding(t, mesh, ("all", *[None] * (t.dim() - 1)))
    if way == "fsdp":
        for module in (*model.blocks, model):
            fully_shard(module)
    if way == "tensor":
        mark_tensor_parallel(model, mesh, "all")


def mark_tensor_parallel(model: GPT2, mesh: xs.Mesh, axis: str) -> None:
    """Split a model's heads, hidden units and tokens along an axis."""
    for name, p in model.named_parameters():
        layer, kind = name.rsplit(".", 1)
        if layer.endswith(_BY_RESULTS):
            xs.mark_sharding(p, mesh, (axis, *[None] * (p.dim() - 1)))
        elif layer.endswith(_BY_OPERANDS) and kind == "weight":
            xs.mark_sharding(p, mesh, (None, axis))


def exchanged_on_paper(way: str, model: GPT2, num_tokens: int) -> dict[str, int]:
    """Bytes of the tensors that devices put together, each counted whole, by the kind of
    collective; with a batch whose parts lie on devices."""
    parameters = sum(p.nbytes for p in model.parameters())
    number = model.tokens.weight.itemsize
    activation = num_tokens * model.tokens.embedding_dim * number
    if way == "data":
        # The gradients and the number of targets. Those of the head and of the embedding, which
        # share a weight, are two.
        return {"all-reduce": parameters + model.tokens.weight.nbytes + number}
    if way == "fsdp":
        # The embedding's gradient is put together where it lies, from the rows of all tokens. XLA
        # on the CPU scatters by a sum of which each device takes its part.
        rows = activation + num_tokens * 4
        # Matrices are gathered once more for the backward pass, but in the last layer.
        layers = [p for block in model.blocks[:-1] for p in block.parameters()]
        again = sum(p.nbytes for p in layers if p.dim() > 1)
        return {"all-gather": parameters + again + rows, "all-reduce": parameters + number}
    # Two a layer and direction, what the embedding gives, the gradient of what the head takes; of
    # each token's logits the greatest, the sum, and the target's.
    activations = (4 * len(model.blocks) + 2) * activation
    return {"all-reduce": activations + 3 * num_tokens * number}


def exchanged(text: str) -> dict[str, int]:
    """The same of a compiled program."""
    found: dict[str, int] = {}
    for types, kind in _COLLECTIVE.findall(text):
        for _, bits, dims in _TYPE.findall(types):
            size = math.prod(map(int, filter(None, dims.split(","))))
            found[kind] = found.get(kind, 0) + size * int(bits or 8) // 8
    return found
