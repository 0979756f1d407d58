"""Checkpoints one tensor at a time: the host holds no more than the largest tensor.

A checkpoint is the file `path`, written by `torch.save`, whose tensors are references to files in
the folder `path`.tensors, one per tensor.
"""

from __future__ import annotations

import gc
import os
import pathlib
from typing import Any

import torch

from torch_xla import _XLAC, _files, _nested, _saving
from torch_xla._replicas import world
from torch_xla._replicas.collectives import rendezvous


class TensorReference:
    """Stands in a checkpoint for the tensor in file number `tid`."""

    def __init__(self, tid: int) -> None:
        self.tid = tid


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _get_tensors_folder(path: str | os.PathLike[str]) -> str:
    """The folder of a checkpoint's tensors; programs that stream their own ask."""
    return os.fspath(path) + ".tensors"


def _get_tensor_file(path: str | os.PathLike[str], tid: int) -> str:
    """The file of tensor `tid` in the folder `path`."""
    return os.path.join(path, f"tensor_{tid}.pt")


def _folder_of(path: str | os.PathLike[str]) -> pathlib.Path:
    return pathlib.Path(_get_tensors_folder(path))


def _file_of(folder: pathlib.Path, number: int) -> pathlib.Path:
    return pathlib.Path(_get_tensor_file(folder, number))


def save(
    data: Any,
    path: str | os.PathLike[str],
    master_only: bool = True,
    global_master: bool = False,
) -> None:
    """Write `data` with every tensor inside of it moved to the CPU, one after the other.

    An old checkpoint at `path` stays whole until the new one is.

    Args:
        data: what to save; tensors are found inside of containers and objects.
        path: the file; the tensors go to the folder `path`.tensors beside it.
        master_only: write on the first replica only; all have to call it.
        global_master: the first of all replicas; by default the first of each host.

    Raises:
        RuntimeError: an xla tensor inside of `data` is a view of another one's memory.
    """
    if not master_only or world.is_master_ordinal(local=not global_master):
        _saving.check_view_sharing(data)
        _write(data, pathlib.Path(path))
    rendezvous("torch_xla.utils.serialization.save")


def load(path: str | os.PathLike[str], map_location: Any = None, weights_only: bool = True) -> Any:
    """Read what `save` wrote, one tensor after the other.

    Args:
        path: the file that was given to `save`.
        map_location: where the tensors go, as for `torch.load`; by default to the CPU.
        weights_only: allow tensors, numbers, texts and plain containers, and run no code. False
            allows what is needed to load whole objects, which can do anything: for files that you
            trust only.

    Raises:
        RuntimeError: it is no such file, or damaged, or needs `weights_only=False`, or there is no
            device `map_location`.
        FileNotFoundError: it, or the file of one of its tensors, is not there.
    """
    references = _load_file(pathlib.Path(path), None, weights_only)
    folder = _folder_of(path)
    tensors: dict[int, Any] = {}

    def read(found: list[TensorReference]) -> list[Any]:
        for reference in found:
            if not isinstance(reference.tid, int):
                raise RuntimeError(f"load: '{path}' is damaged: a tensor has no number")
            if reference.tid not in tensors:
                file = _file_of(folder, reference.tid)
                tensors[reference.tid] = _load_file(file, map_location, weights_only)
                # torch.load leaves cycles that hold what it read.
                gc.collect(1)
        return [tensors[reference.tid] for reference in found]

    return _nested.replace(references, lambda value: isinstance(value, TensorReference), read)


def _load_file(path: pathlib.Path, map_location: Any, weights_only: bool) -> Any:
    if not path.exists():
        raise FileNotFoundError(f"load: there is no file '{path}'")
    try:
        with torch.serialization.safe_globals([TensorReference]):
            return torch.load(path, map_location=map_location, weights_only=weights_only)
    except OSError:
        raise
    except Exception as error:  # a damaged pickle raises anything
        reason = f"{type(error).__name__}: {error}"
        raise RuntimeError(f"load: '{path}' is no checkpoint of tensors: {reason}") from error


def _write(data: Any, path: pathlib.Path) -> None:
    folder = _folder_of(path)
    folder.mkdir(parents=True, exist_ok=True)
    old = _numbers_in(folder)
    writer = _Writer(folder, max(old, default=-1) + 1)
    try:
        references = _nested.replace(data, _is_tensor, writer.write)
        with _files.replacing(path) as file:
            torch.save(references, file)
    except BaseException:
        writer.remove_all()
        raise
    # The new file names the new tensors alone.
    for number in old:
        _file_of(folder, number).unlink(missing_ok=True)


def _numbers_in(folder: pathlib.Path) -> list[int]:
    names = (path.stem.removeprefix("tensor_") for path in folder.glob("tensor_*.pt"))
    return [int(name) for name in names if name.isdigit()]


class _Writer:
    """Gives tensors files of their own, with numbers from `first` on, and one to tied tensors."""

    def __init__(self, folder: pathlib.Path, first: int) -> None:
        self._folder = folder
        self._first = first
        self._numbers: dict[tuple[int, bool], int] = {}

    def write(self, tensors: list[torch.Tensor]) -> list[TensorReference]:
        # In one program, rather than each in its own when it is read.
        _XLAC._materialize([tensor for tensor in tensors if _saving.is_ours(tensor)])
        return [TensorReference(self._write_once(tensor)) for tensor in tensors]

    def remove_all(self) -> None:
        for number in range(self._first, self._first + len(self._numbers) + 1):
            _file_of(self._folder, number).unlink(missing_ok=True)

    def _write_once(self, tensor: torch.Tensor) -> int:
        # After check_view_sharing tensors with one memory are tied: the same as a whole.
        memory = _XLAC._alias_id(tensor) or id(tensor)
        key = (memory, isinstance(tensor, torch.nn.Parameter))
        if key not in self._numbers:
            number = self._first + len(self._numbers)
            copy = _on_cpu(tensor)
            with _files.replacing(_file_of(self._folder, number)) as file:
                torch.save(copy, file)
            # torch.save leaves cycles that hold what it wrote until the next garbage collection.
            if copy is not tensor:
                copy.detach().untyped_storage().resize_(0)
            self._numbers[key] = number
        return self._numbers[key]


def _on_cpu(tensor: torch.Tensor) -> torch.Tensor:
    if _saving.is_ours(tensor):
        return _saving.to_cpu([tensor])[0]
    # A part of a larger memory would take all of it to the file.
    is_part = tensor.untyped_storage().nbytes() > tensor.numel() * tensor.itemsize
    return tensor.clone() if is_part else tensor
