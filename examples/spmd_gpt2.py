"""Trains gpt2.py's model as one program over a mesh of all devices.

    pip install transformers
    CPU_NUM_DEVICES=4 python examples/spmd_gpt2.py --way data    each device has a part of the batch
    CPU_NUM_DEVICES=4 python examples/spmd_gpt2.py --way tensor  a part of each layer
    CPU_NUM_DEVICES=4 python examples/spmd_gpt2.py --way 2d      both, on a mesh of two rows
    CPU_NUM_DEVICES=4 python examples/spmd_gpt2.py --way fsdp    of the batch, and of each parameter

The model is Hugging Face's, unchanged. What differs from gpt2.py is how tensors are said to lie:
values are the same each way, and so is the number of programs.
"""

import argparse
import pathlib

import torch
from gpt2 import batches
from transformers import GPT2Config, GPT2LMHeadModel

import torch_xla
import torch_xla.debug.metrics as metrics
import torch_xla.distributed.spmd as xs
import torch_xla.runtime as xr

# Megatron's: what makes heads and hidden units is split by its results, what takes them by its
# operands. GPT-2's weights are (operands, results).
BY_RESULTS = ("attn.c_attn", "mlp.c_fc")
BY_OPERANDS = ("attn.c_proj", "mlp.c_proj")


def make_mesh(way: str) -> xs.Mesh:
    """All devices, by the axes "data" and "model"."""
    count = xr.global_runtime_device_count()
    shapes = {"tensor": (1, count), "2d": (2, count // 2)}
    return xs.Mesh(range(count), shapes.get(way, (count, 1)), ("data", "model"))


def mark_parameters(model: torch.nn.Module, mesh: xs.Mesh, way: str) -> None:
    """Say how parameters lie; gradients and the optimizer's states follow them."""
    for name, parameter in model.named_parameters():
        layer, kind = name.rsplit(".", 1)
        if way == "fsdp":
            xs.mark_sharding(parameter, mesh, ("data", *[None] * (parameter.dim() - 1)))
        elif way in ("tensor", "2d"):
            if layer.endswith(BY_RESULTS):
                spec = (None, "model") if kind == "weight" else ("model",)
                xs.mark_sharding(parameter, mesh, spec)
            elif layer.endswith(BY_OPERANDS) and kind == "weight":
                xs.mark_sharding(parameter, mesh, ("model", None))


def main(arguments: list[str] | None = None) -> list[float]:
    """Trains; the losses that were read."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--way", choices=["data", "tensor", "2d", "fsdp"], default="data")
    parser.add_argument("--text", type=pathlib.Path, default=pathlib.Path(__file__))
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=128)
    options = parser.parse_args(arguments)

    torch.manual_seed(0)
    xr.use_spmd()
    mesh = make_mesh(options.way)
    text = options.text.read_text()
    letters = sorted(set(text))
    tokens = torch.tensor([letters.index(letter) for letter in text])
    config = GPT2Config(
        vocab_size=len(letters),
        n_positions=options.length,
        n_embd=options.width,
        n_layer=options.layers,
        n_head=4,
        bos_token_id=0,
        eos_token_id=0,
        **{f"{where}_pdrop": 0.0 for where in ("attn", "embd", "resid")},
    )
    model = GPT2LMHeadModel(config).to("xla").train()
    mark_parameters(model, mesh, options.way)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    losses, every = [], max(options.steps // 10, 1)
    rounds = batches(tokens, options.steps, options.batch_size, options.length)
    for step, batch in enumerate(rounds, start=1):
        # With the mesh's axis "data" of one device, as with "tensor", the batch is whole.
        batch = xs.mark_sharding(batch.to("xla"), mesh, ("data", None)).global_tensor
        loss = model(input_ids=batch, labels=batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        torch_xla.sync()
        if step % every == 0:
            losses.append(loss.item())
            print(f"step {step}: loss {losses[-1]:.3f}")
    weight = model.transformer.h[0].mlp.c_fc.weight
    part = tuple(xs.local_shards(weight)[0].data.shape)
    print(f"of a weight of {tuple(weight.shape)} each device of {mesh.mesh_shape} has {part}")
    print(f"compiled {metrics.counter_value('UncachedCompile') or 0} programs")
    return losses


if __name__ == "__main__":
    main()
