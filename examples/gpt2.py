"""Trains a GPT-2 of Hugging Face's on a text, letter by letter, and lets it go on writing.

    pip install transformers
    python examples/gpt2.py                            this file is the text
    python examples/gpt2.py --text FILE --steps 2000 --layers 12 --width 768

The model is theirs, unchanged. Every batch has one size, so one program is compiled, and the losses
are read now and then, not in every step.
"""

import argparse
import pathlib

import torch
from transformers import GPT2Config, GPT2LMHeadModel

import torch_xla
import torch_xla.debug.metrics as metrics


def batches(tokens: torch.Tensor, count: int, batch: int, length: int):
    """Pieces of the text from random places."""
    for _ in range(count):
        starts = torch.randint(len(tokens) - length, (batch, 1))
        yield tokens[starts + torch.arange(length)]


def main(arguments: list[str] | None = None) -> list[float]:
    """Trains; the losses that were read."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--text", type=pathlib.Path, default=pathlib.Path(__file__))
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--write", type=int, default=80, help="letters to write at the end")
    options = parser.parse_args(arguments)

    torch.manual_seed(0)
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
    )
    device = torch_xla.device()
    model = GPT2LMHeadModel(config).to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    losses, total = [], torch.zeros((), device=device)
    every = max(options.steps // 10, 1)
    rounds = batches(tokens, options.steps, options.batch_size, options.length)
    for step, batch in enumerate(rounds, start=1):
        batch = batch.to(device)
        loss = model(input_ids=batch, labels=batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total += loss.detach()
        torch_xla.sync()
        if step % every == 0:
            losses.append(total.item() / every)
            total = torch.zeros((), device=device)
            print(f"step {step}: loss {losses[-1]:.3f}")
    print(f"compiled {metrics.counter_value('UncachedCompile') or 0} programs")

    if options.write:
        start = tokens[None, : options.length // 2].to(device)
        written = write(model.eval(), start, options.write, options.length)
        print("".join(letters[i] for i in written.tolist()))
    return losses


@torch.no_grad()
def write(model: GPT2LMHeadModel, context: torch.Tensor, count: int, length: int) -> torch.Tensor:
    """The most likely next letters. The window has one size from the first letter on, and nothing
    is read before the last: the letters are one program, run `count` times."""
    window = torch.nn.functional.pad(context, (length - context.shape[1], 0))
    written = []
    for _ in range(count):
        letter = model(input_ids=window).logits[:, -1].argmax(-1, keepdim=True)
        window = torch.cat([window[:, 1:], letter], dim=1)
        written.append(letter)
        torch_xla.sync()
    return torch.cat(written, dim=1)[0].cpu()


if __name__ == "__main__":
    main()
