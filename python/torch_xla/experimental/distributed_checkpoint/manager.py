"""`CheckpointManager`: when to save, where, and what to keep."""

from __future__ import annotations

import os
import pathlib
import shutil
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save as save_in_parts

from torch_xla import _barriers, _causes, _nested, _saving
from torch_xla._spmd import mode
from torch_xla.experimental.distributed_checkpoint.planners import SPMDLoadPlanner, SPMDSavePlanner

# torch's last file of a step.
_METADATA = ".metadata"
# Behind a step's number: the folder of one that is being written, and of the one that it replaces.
_UNFINISHED = ".unfinished"
_REPLACED = ".replaced"


def _tensors(state: Any) -> Iterator[torch.Tensor]:
    """Those inside of dicts and lists, in order."""
    if isinstance(state, torch.Tensor):
        yield state
    elif isinstance(state, dict):
        for value in state.values():
            yield from _tensors(value)
    elif isinstance(state, (list, tuple)):
        for value in state:
            yield from _tensors(value)


class CheckpointManager:
    """Saves and restores the state of a training by step. A step is in its folder whole or not at
    all: it is written to another one, which gets its name when it is complete. The files are those
    of `torch.distributed.checkpoint`; tensors on a mesh are in them part by part, and are restored
    onto another mesh, onto one device, or from a checkpoint of one device.

    Args:
        path: the folder; each step has one in it.
        save_interval: after how many steps to save.
        max_to_keep: how many steps to keep; the oldest go. 0 keeps all.
        max_pending_async: how many `save_async` may be unfinished before one waits.
        num_of_threads: how many threads write.
        process_group: the processes that save together; there is one.
        chkpt_on_preemption: save when the process is told to end (SIGTERM).

    Raises:
        ValueError: a number is out of range.
        NotImplementedError: the devices are those of several processes.
    """

    def __init__(
        self,
        path: str,
        save_interval: int,
        max_to_keep: int = 0,
        max_pending_async: int = 1,
        num_of_threads: int = 1,
        process_group: Any = None,
        chkpt_on_preemption: bool = True,
    ) -> None:
        del process_group
        if mode.is_spmd() and mode.spans_processes():
            raise NotImplementedError(
                "CheckpointManager: a mesh over several processes is not supported: each would "
                "write its parts alone"
            )
        if save_interval <= 0 or max_to_keep < 0 or max_pending_async <= 0:
            raise ValueError(
                "CheckpointManager: expected a positive save_interval and max_pending_async, and "
                f"max_to_keep of 0 or more; got {save_interval}, {max_pending_async} and "
                f"{max_to_keep}"
            )
        self._path = pathlib.Path(path)
        self._path.mkdir(parents=True, exist_ok=True)
        self._save_interval = save_interval
        self._max_to_keep = max_to_keep
        self._num_threads = num_of_threads
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="xla-checkpoint")
        self._slots = threading.Semaphore(max_pending_async)
        self._pending: list[Future[None]] = []
        self._is_preempted = threading.Event()
        if chkpt_on_preemption and threading.current_thread() is threading.main_thread():
            self._watch_for_preemption()

    def _watch_for_preemption(self) -> None:
        previous = signal.getsignal(signal.SIGTERM)

        def note(number: int, frame: Any) -> None:
            # The first time the program gets its chance to save and end; then it ends.
            if not self._is_preempted.is_set():
                self._is_preempted.set()
            elif callable(previous):
                previous(number, frame)
            else:
                raise SystemExit(128 + number)

        signal.signal(signal.SIGTERM, note)

    def should_save(self, step: int) -> bool:
        """Whether this step is one to save."""
        return self.reached_preemption(step) or step % self._save_interval == 0

    def save(self, step: int, state_dict: dict[str, Any], force: bool = False) -> bool:
        """Save the state, if this step is one to save, or with `force`. Waits until it is written.
        The host holds one part of a tensor per thread that writes.

        Returns:
            Whether it was saved.
        """
        if not (force or self.should_save(step)):
            return False
        for future in self._pending:
            future.exception()  # one writes at a time
        self._write(step, state_dict)
        return True

    def save_async(self, step: int, state_dict: dict[str, Any], force: bool = False) -> bool:
        """As `save`, but only the copy to the CPU is waited for: the host holds all of the state
        until it is written.

        Raises:
            Exception: what an earlier one failed with.
        """
        if not (force or self.should_save(step)):
            return False
        self._slots.acquire()
        try:
            self._raise_failures()
            state = self._on_cpu(state_dict)
            future = self._writer.submit(self._write, step, state)
        except BaseException:
            self._slots.release()
            raise
        future.add_done_callback(lambda _: self._slots.release())
        self._pending.append(future)
        return True

    def restore(self, step: int, state_dict: dict[str, Any]) -> None:
        """Read a step into the tensors of `state_dict`, in place; other values are replaced.

        Raises:
            ValueError: the step was not saved, or it is not of this model: it lacks something, or
                has a tensor with another shape. The text names it, and nothing has changed.
        """
        if step not in self.all_steps():
            raise ValueError(
                f"CheckpointManager.restore: there is no step {step} in {self._path}, there are "
                f"{self.all_steps()}"
            )
        reader = FileSystemReader(self._folder(step))
        try:
            load(state_dict, storage_reader=reader, planner=SPMDLoadPlanner(), no_dist=True)
        except CheckpointException as error:
            failure = next(iter(error.failures.values()))[0]
            if not isinstance(failure, (ValueError, RuntimeError)):
                raise
            raise ValueError(
                f"CheckpointManager.restore: step {step} in {self._path} does not fit the state: "
                f"{failure}"
            ) from error

    def all_steps(self) -> list[int]:
        """The steps that were saved, in order."""
        names = {folder.name.removesuffix(_REPLACED) for folder in self._path.iterdir()}
        steps = sorted(int(name) for name in names if name.isdigit())
        return [step for step in steps if (self._folder(step) / _METADATA).exists()]

    def join(self) -> None:
        """Wait for what `save_async` has under way.

        Raises:
            Exception: what one of them failed with.
        """
        for future in list(self._pending):
            future.exception()
        self._raise_failures()

    def reached_preemption(self, step: int) -> bool:
        """Whether the process was told to end."""
        del step
        return self._is_preempted.is_set()

    def _folder(self, step: int) -> pathlib.Path:
        """Where a step is: of one that was to be replaced, the one before, if a process was killed
        between its two names."""
        folder = self._path / str(step)
        replaced = folder.with_suffix(_REPLACED)
        return replaced if replaced.exists() and not folder.exists() else folder

    def _on_cpu(self, state_dict: dict[str, Any]) -> dict[str, Any]:
        with _causes.because("saving of a checkpoint"):
            _barriers.sync()
        moved = _saving.on_cpu(state_dict)
        # Those that were on the CPU already, as an optimizer's counts of steps, go on changing.
        shared = {id(tensor) for tensor in _tensors(state_dict)}
        copied: dict[str, Any] = _nested.replace(
            moved,
            lambda value: isinstance(value, torch.Tensor) and id(value) in shared,
            lambda tensors: [tensor.clone() for tensor in tensors],
        )
        return copied

    def _write(self, step: int, state: dict[str, Any]) -> None:
        self._tidy_up()
        folder = self._path / str(step)
        unfinished = folder.with_suffix(_UNFINISHED)
        writer = FileSystemWriter(unfinished, thread_count=self._num_threads)
        save_in_parts(state, storage_writer=writer, planner=SPMDSavePlanner(), no_dist=True)
        if folder.exists():
            folder.rename(folder.with_suffix(_REPLACED))
        unfinished.rename(folder)
        self._make_durable()
        self._tidy_up()
        steps = self.all_steps()
        surplus = len(steps) - self._max_to_keep if self._max_to_keep else 0
        for old in steps[: max(0, surplus)]:
            shutil.rmtree(self._folder(old))

    def _tidy_up(self) -> None:
        """Remove what this process replaced, and what one left that was killed while it wrote."""
        for replaced in self._path.glob(f"*{_REPLACED}"):
            if replaced.with_suffix("").exists():
                shutil.rmtree(replaced)
        for unfinished in self._path.glob(f"*{_UNFINISHED}"):
            shutil.rmtree(unfinished)

    def _make_durable(self) -> None:
        """The names of the folders are on the disk, as the files in them are already."""
        descriptor = os.open(self._path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _raise_failures(self) -> None:
        done = [future for future in self._pending if future.done()]
        self._pending = [future for future in self._pending if not future.done()]
        for future in done:
            future.result()
