"""The lazy graph behind tensors as files."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence

import torch

from torch_xla import _XLAC

_SUFFIXES = {"text": "txt", "dot": "dot", "hlo": "hlo"}


def save_tensors_graph(save_dir: str, name: str, tensors: Sequence[torch.Tensor]) -> None:
    """Write what a read of `tensors` would run to `save_dir`/`name`.txt, .dot and .hlo."""
    folder = pathlib.Path(save_dir)
    for format, suffix in _SUFFIXES.items():
        text = _XLAC._graph_of(list(tensors), format)
        (folder / f"{name}.{suffix}").write_text(text)
