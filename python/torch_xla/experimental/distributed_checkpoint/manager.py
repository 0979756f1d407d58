"""`CheckpointManager`: when to save, where, and what to keep."""

from __future__ import annotations

import pathlib
import shutil
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save as save_in_parts

from torch_xla import _barriers, _causes, _nested, _saving

# A folder that is complete has this file of torch's; one that a killed writer left has not.
_METADATA = ".metadata"


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
    """Saves and restores the state of a training by step.

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

        Returns:
            Whether it was saved.
        """
        if not (force or self.should_save(step)):
            return False
        self._write(step, self._on_cpu(state_dict))
        return True

    def save_async(self, step: int, state_dict: dict[str, Any], force: bool = False) -> bool:
        """As `save`, but only the copy to the CPU is waited for.

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
            ValueError: the step was not saved.
        """
        if step not in self.all_steps():
            raise ValueError(
                f"CheckpointManager.restore: there is no step {step} in {self._path}, there are "
                f"{self.all_steps()}"
            )
        loaded = self._on_cpu(state_dict)
        reader = FileSystemReader(self._folder(step))
        load(loaded, storage_reader=reader, no_dist=True)
        with torch.no_grad():
            for target, value in zip(_tensors(state_dict), _tensors(loaded), strict=True):
                target.copy_(value)
        for key, value in loaded.items():
            if not isinstance(value, (torch.Tensor, dict, list, tuple)):
                state_dict[key] = value

    def all_steps(self) -> list[int]:
        """The steps that were saved, in order."""
        return sorted(
            int(folder.name)
            for folder in self._path.iterdir()
            if folder.name.isdigit() and (folder / _METADATA).exists()
        )

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
        return self._path / str(step)

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
        writer = FileSystemWriter(self._folder(step), thread_count=self._num_threads)
        save_in_parts(state, storage_writer=writer, no_dist=True)
        steps = self.all_steps()
        surplus = len(steps) - self._max_to_keep if self._max_to_keep else 0
        for old in steps[: max(0, surplus)]:
            shutil.rmtree(self._folder(old))

    def _raise_failures(self) -> None:
        done = [future for future in self._pending if future.done()]
        self._pending = [future for future in self._pending if not future.done()]
        for future in done:
            future.result()
