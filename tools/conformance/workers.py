"""Work in child processes, so that one that dies is an answer with a name, not the end of a run.

A child is kept for the next task and replaced when it died: imports and the device's start are paid
once. `python workers.py module:function` is such a child; it reads pickled arguments from its
standard input and writes pickled answers.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import importlib
import os
import pathlib
import pickle
import queue
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterable, Iterator
from typing import Any

__all__ = ["Died", "Raised", "Worker", "run"]

_HERE = pathlib.Path(__file__).resolve()


@dataclasses.dataclass(frozen=True)
class Died:
    """The answer of a child that gave none: "SIGFPE", "exit status 1", "no answer in 300 s"."""

    how: str


@dataclasses.dataclass(frozen=True)
class Raised:
    """The answer of a function that raised, with the traceback's text."""

    text: str


class Worker:
    """One child at a time that calls a function, named "module:function", with these variables in
    its environment beside the parent's."""

    def __init__(self, function: str, timeout_s: float = 600, **environment: str) -> None:
        self._function = function
        self._environment = environment
        self._timeout_s = timeout_s
        self._child: subprocess.Popen[bytes] | None = None

    def ask(self, *arguments: object) -> Any:
        """What the function returns for the arguments, `Raised`, or `Died`."""
        child = self._child = self._child or self._start()
        assert child.stdin is not None and child.stdout is not None
        is_late = threading.Event()

        def stop() -> None:
            is_late.set()
            child.kill()

        timer = threading.Timer(self._timeout_s, stop)
        timer.start()
        try:
            pickle.dump(arguments, child.stdin)
            child.stdin.flush()
            return pickle.load(child.stdout)
        except (EOFError, OSError, pickle.UnpicklingError):
            return self._died(is_late.is_set())
        finally:
            timer.cancel()

    def close(self) -> None:
        """Ends the child, at once where it does not end by itself."""
        child, self._child = self._child, None
        if child is None:
            return
        with contextlib.suppress(OSError):
            try:
                child.communicate(timeout=60)
            except subprocess.TimeoutExpired:
                child.kill()
                child.communicate()

    def _start(self) -> subprocess.Popen[bytes]:
        path = os.pathsep.join([str(_HERE.parent), *filter(None, sys.path)])
        return subprocess.Popen(
            [sys.executable, "-P", str(_HERE), self._function],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **self._environment, "PYTHONPATH": path},
        )

    def _died(self, is_late: bool) -> Died:
        child, self._child = self._child, None
        assert child is not None
        status = child.wait()
        for pipe in filter(None, (child.stdin, child.stdout)):
            with contextlib.suppress(OSError):  # what it was not given any more
                pipe.close()
        if is_late:
            return Died(f"no answer in {self._timeout_s:g} s")
        return Died(signal.Signals(-status).name if status < 0 else f"exit status {status}")


def run(
    function: str, tasks: Iterable[tuple[Any, ...]], jobs: int = 1, timeout_s: float = 600
) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Each task's arguments with its answer, in the order of the tasks, by `jobs` children."""
    idle: queue.SimpleQueue[Worker] = queue.SimpleQueue()
    workers = [Worker(function, timeout_s) for _ in range(jobs)]
    for worker in workers:
        idle.put(worker)

    def answer(task: tuple[Any, ...]) -> tuple[tuple[Any, ...], Any]:
        worker = idle.get()
        try:
            return task, worker.ask(*task)
        finally:
            idle.put(worker)

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(answer, tasks)
    for worker in workers:
        worker.close()


def _serve(name: str) -> None:
    """Answers until the parent closes the pipe. What the work prints goes elsewhere."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    module, function = name.split(":")
    call = getattr(importlib.import_module(module), function)
    while True:
        try:
            arguments = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer = call(*arguments)
        except Exception:
            answer = Raised(traceback.format_exc())
        pickle.dump(answer, answers)
        answers.flush()


if __name__ == "__main__":
    # By the module's own name, by which the parent knows the classes of answers.
    importlib.import_module("workers")._serve(sys.argv[1])
