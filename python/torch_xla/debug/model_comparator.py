"""The same model run twice, as on the CPU and on the device: where do its tensors part?

Each run saves tensors under names to a folder of its own; `compare` then tells of the differences,
also as `python -m torch_xla.debug.model_comparator FOLDER1 FOLDER2`.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import sys
from collections import Counter

import torch

from torch_xla import _XLAC, _files

Path = str | os.PathLike[str]

_folder: pathlib.Path | None = None
_step: int | None = None
_saved: Counter[str] = Counter()  # how many tensors of a name there are, of this step


def configure(save_dir: Path | None) -> None:
    """Let `save` write to a folder from now on, or with None nowhere."""
    global _folder, _step
    _folder = None if save_dir is None else pathlib.Path(save_dir)
    _step = None
    _saved.clear()


def save(name: str | None, tensor: torch.Tensor, step: int | None = None) -> torch.Tensor:
    """Write a tensor's values as the next of its name; nothing happens before `configure`.

    Args:
        name: what it is called in both runs; by default the line of the call.
        tensor: of any device; it is read here.
        step: the number of the step, which has a folder of its own.

    Returns:
        The tensor, so that a call fits into an expression.
    """
    global _step
    if _folder is None:
        return tensor
    if step is not None and step != _step:
        _step = step
        _saved.clear()
    if name is None:
        source, _, line = _XLAC._user_line().rpartition(":")
        name = f"{os.path.basename(source)}.l{line}"
    if os.sep in name:
        raise ValueError(f"model_comparator.save: {name!r} is no name of a file")
    where = _folder if step is None else _folder / f"step-{step}"
    where.mkdir(parents=True, exist_ok=True)
    with _files.replacing(where / f"{name}.{_saved[name]}") as file:
        torch.save(tensor.detach().cpu(), file)
    _saved[name] += 1
    return tensor


def compare_tensors(
    tensor1: torch.Tensor,
    tensor2: torch.Tensor,
    rtol: float = 1e-5,
    atol: float = 1e-8,
    max_diffs: int = 25,
) -> str:
    """The elements of two CPU tensors that are further apart than `atol`, and than `rtol` times the
    larger one: a line for each of the `max_diffs` largest differences. No text if there are none;
    NaN is equal to NaN."""
    if tensor1.shape != tensor2.shape:
        return f"shapes differ: {tuple(tensor1.shape)} and {tuple(tensor2.shape)}\n"
    wide = torch.complex128 if tensor1.is_complex() or tensor2.is_complex() else torch.float64
    a, b = tensor1.to(wide).flatten(), tensor2.to(wide).flatten()
    is_same = (a == b) | (a.isnan() & b.isnan())
    error = torch.where(is_same, 0.0, (a - b).abs()).nan_to_num(torch.inf, torch.inf)
    allowed = (torch.maximum(a.abs(), b.abs()) * rtol).clamp(min=atol)
    # What is allowed of an infinite number is not everything.
    (places,) = torch.where(~is_same & ((error > allowed) | error.isinf()))
    if not len(places):
        return ""
    places = places[error[places].argsort(descending=True, stable=True)]
    lines = [f"{len(places)} of {a.numel()} elements differ\n"]
    for place in places[:max_diffs]:
        index = [int(i) for i in torch.unravel_index(place, tensor1.shape)]
        lines.append(f"{index}: {a[place].item()} and {b[place].item()}\n")
    return "".join(lines)


def tensor_file_compare(
    path1: Path,
    path2: Path,
    rtol: float = 1e-5,
    atol: float = 1e-8,
    max_diffs: int = 25,
) -> str:
    """`compare_tensors` of two files that `save` wrote."""
    tensor1, tensor2 = (torch.load(path, weights_only=True) for path in (path1, path2))
    return compare_tensors(tensor1, tensor2, rtol, atol, max_diffs)


def _tensors_of(folder: Path) -> dict[str, pathlib.Path]:
    root = pathlib.Path(folder)
    if not root.is_dir():
        raise FileNotFoundError(f"model_comparator: there is no folder {root}")
    paths = [path for path in root.rglob("*") if path.suffix[1:].isdigit() and path.is_file()]
    return {str(path.relative_to(root)): path for path in paths}


def compare(
    save_dir1: Path,
    save_dir2: Path,
    rtol: float = 1e-5,
    atol: float = 1e-8,
    max_diffs: int = 25,
) -> str:
    """What differs between two folders that `save` wrote: tensors that one of them lacks, and
    elements as `compare_tensors` finds them, by file name. No text if nothing does.

    Raises:
        FileNotFoundError: there is no such folder.
    """
    first, second = _tensors_of(save_dir1), _tensors_of(save_dir2)
    lines = []
    for name in sorted(first.keys() | second.keys()):
        if name not in first or name not in second:
            lines.append(f"{name} is in {save_dir1 if name in first else save_dir2} alone\n")
            continue
        found = tensor_file_compare(first[name], second[name], rtol, atol, max_diffs)
        if found:
            lines.append(f"{name}:\n")
            lines.extend(f"  {line}\n" for line in found.splitlines())
    return "".join(lines)


def main() -> int:
    """The command: 1 if there are differences."""
    parser = argparse.ArgumentParser(description="Compare what two runs of a model saved.")
    parser.add_argument("save_dir1")
    parser.add_argument("save_dir2")
    parser.add_argument("--rtol", type=float, default=1e-5)
    parser.add_argument("--atol", type=float, default=1e-8)
    parser.add_argument("--max_diffs", type=int, default=25)
    report = compare(**vars(parser.parse_args()))
    sys.stdout.write(report)
    return 1 if report else 0


if __name__ == "__main__":
    sys.exit(main())
