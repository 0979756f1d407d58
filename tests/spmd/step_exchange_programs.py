"""Run by test_exchanges_of_steps.py with four devices, a way to split and a folder into which XLA
writes its programs: training steps of a small GPT-2.

Prints how many programs each step compiled, what devices exchange in one by the kind of collective,
the same on paper, and the bytes of the program's arguments.
"""

from __future__ import annotations

import itertools
import json
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).parents[1] / "support"))


import split_gpt2
import torch
from models import GPT2, TransformerConfig

import torch_xla
import torch_xla.runtime as xr
from torch_xla import _XLAC


def main(way: str, folder: pathlib.Path) -> None:
    xr.use_spmd()
    torch.manual_seed(0)
    config = TransformerConfig(
        num_layers=2, width=32, num_heads=4, vocabulary=256, max_length=16, dropout=0.1
    )
    model = split_gpt2.by_heads(GPT2(config).to("xla"))
    tokens = torch.randint(config.vocabulary, (4, 17)).to("xla")
    inputs, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    split_gpt2.place(way, model, inputs, targets)
    optimizer = torch.optim.AdamW(model.parameters())
    torch_xla.sync()
    compiled = [_XLAC._computation_stats()[0]]
    for _ in range(3):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(inputs).flatten(0, -2), targets.flatten())
        loss.backward()
        optimizer.step()
        del loss  # it is not asked for
        torch_xla.sync(wait=True)
        compiled.append(_XLAC._computation_stats()[0])
    texts = [path.read_text() for path in folder.glob("*after_optimizations.txt")]
    said = {
        "compiled": [after - before for before, after in itertools.pairwise(compiled)],
        "exchanged": split_gpt2.exchanged(max(texts, key=len)),
        "on paper": split_gpt2.exchanged_on_paper(way, model, inputs.numel()),
        "argument": _XLAC._last_program_memory()["argument_size_in_bytes"],
        "parameters": sum(p.nbytes for p in model.parameters()),
    }
    print(json.dumps(said))


if __name__ == "__main__":
    main(sys.argv[1], pathlib.Path(sys.argv[2]))
