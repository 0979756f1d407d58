"""Small things that scripts use beside the device: stand-ins for data, timers, environment."""

from __future__ import annotations

import contextlib
import functools
import os
import socket
import sys
import tempfile
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, TypeVar

from torch_xla import _nested

T = TypeVar("T")


class SampleGenerator(Generic[T]):
    """An iterable that gives the same `data`, a batch or anything else, `sample_count` times."""

    def __init__(self, data: T, sample_count: int) -> None:
        self._data = data
        self._sample_count = sample_count
        self._count = 0

    def __iter__(self) -> Iterator[T]:
        return SampleGenerator(self._data, self._sample_count)

    def __len__(self) -> int:
        return self._sample_count

    def __next__(self) -> T:
        if self._count >= self._sample_count:
            raise StopIteration
        self._count += 1
        return self._data

    def next(self) -> T:
        """The next sample; what `next(generator)` gives."""
        return self.__next__()


class FnDataGenerator:
    """An iterable of `count` pairs (data, function of that data) of random batches.

    Args:
        func: makes the second of a pair.
        batch_size: rows per batch.
        gen_tensor: makes random data of given sizes, such as `torch.randn`.
        dims: the sizes of a row.
        count: how many batches.
    """

    def __init__(
        self,
        func: Callable[[Any], Any],
        batch_size: int,
        gen_tensor: Callable[..., Any],
        dims: Sequence[int] | None = None,
        count: int = 1,
    ) -> None:
        self._func = func
        self._sizes = (batch_size, *(dims or (1,)))
        self._gen_tensor = gen_tensor
        self._count = count
        self._emitted = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> FnDataGenerator:
        return FnDataGenerator(
            self._func, self._sizes[0], self._gen_tensor, self._sizes[1:], self._count
        )

    def __next__(self) -> tuple[Any, Any]:
        if self._emitted >= self._count:
            raise StopIteration
        self._emitted += 1
        data = self._gen_tensor(*self._sizes)
        return data, self._func(data)

    def next(self) -> tuple[Any, Any]:
        """The next pair; what `next(generator)` gives."""
        return self.__next__()


class DataWrapper:
    """A base for objects that hold tensors: `get_tensors` gives them, and `from_tensors` makes an
    object with others, so that loaders can move what is inside."""

    def get_tensors(self) -> list[Any]:
        """The tensors inside."""
        raise NotImplementedError

    def from_tensors(self, tensors: list[Any]) -> DataWrapper:
        """An object like this one with these tensors."""
        raise NotImplementedError


def getenv_as(name: str, type: Callable[[str], T], defval: T | None = None) -> T | None:
    """An environment variable, converted: `getenv_as("N", int, 3)`."""
    text = os.environ.get(name)
    if text is None:
        return defval
    if type is bool:
        return check_env_flag(name)  # type: ignore[return-value]
    return type(text)


def check_env_flag(name: str, default: str = "") -> bool:
    """Whether an environment variable says yes: 1, y, yes, on or true."""
    return os.environ.get(name, default).upper() in ("ON", "1", "YES", "TRUE", "Y")


def get_free_tcp_ports(n: int = 1) -> list[int]:
    """Ports that no one listened on a moment ago, all different."""
    with contextlib.ExitStack() as stack:
        ports = []
        for _ in range(n):
            opened = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            opened.bind(("", 0))
            ports.append(opened.getsockname()[1])
        return ports


def for_each_instance(
    value: Any, select_fn: Callable[[Any], bool], fn: Callable[[Any], Any]
) -> None:
    """Call `fn` for each selected value inside of containers and objects."""
    for _, found in _nested.walk(value, select_fn):
        fn(found)


def for_each_instance_rewrite(
    value: Any, select_fn: Callable[[Any], bool], fn: Callable[[Any], Any]
) -> Any:
    """A copy of `value` in which `fn` replaced each selected value."""
    return _nested.replace(value, select_fn, lambda values: [fn(v) for v in values])


def null_print(*args: Any, **kwargs: Any) -> None:
    """In the place of `print`: prints nothing."""


def eprint(*args: Any, **kwargs: Any) -> None:
    """`print` on the standard error stream."""
    print(*args, **{"file": sys.stderr, **kwargs})


def get_print_fn(debug: bool | None = None) -> Callable[..., Any]:
    """`eprint`, or `null_print` if `debug` is False; by default the environment variable `DEBUG`
    says so."""
    is_wanted = check_env_flag("DEBUG") if debug is None else debug
    return eprint if is_wanted else null_print


def as_list(t: Any) -> list[Any]:
    """A list or tuple as a list; anything else as a list with it."""
    return list(t) if isinstance(t, (list, tuple)) else [t]


def list_copy_append(ilist: Sequence[T], item: T) -> list[T]:
    """A new list with `item` at its end."""
    return [*ilist, item]


def flatten_nested_tuple(inputs: Any) -> tuple[Any, ...]:
    """What is inside of tuples and lists in each other, in its order, as one tuple."""
    if not isinstance(inputs, (list, tuple)):
        return (inputs,)
    return tuple(item for part in inputs for item in flatten_nested_tuple(part))


def shape(inputs: Any) -> tuple[int, ...]:
    """The sizes of lists in each other, or of what has a `shape`: that of the first of each."""
    if hasattr(inputs, "shape"):
        return tuple(inputs.shape)
    if not isinstance(inputs, (list, tuple)):
        return ()
    return (len(inputs), *(shape(inputs[0]) if inputs else ()))


class Cleaner:
    """Calls a function when it is dropped, or the interpreter ends."""

    def __init__(self, func: Callable[[], Any]) -> None:
        self._finalizer = weakref.finalize(self, func)


class LazyProperty(Generic[T]):
    """What `gen_fn()` returns; it is called when one first asks for `value`."""

    def __init__(self, gen_fn: Callable[[], T]) -> None:
        self._gen_fn = gen_fn

    @functools.cached_property
    def value(self) -> T:
        """The value."""
        return self._gen_fn()


class TmpFolder(tempfile.TemporaryDirectory[str]):
    """A context with a new folder, which gives its path and removes it at the end."""


def timed(fn: Callable[[], T], msg: str = "", printfn: Callable[..., Any] = eprint) -> T:
    """What `fn()` returns; tells how long it took by `printfn`."""
    start = time.perf_counter()
    result = fn()
    printfn(f"{msg}{time.perf_counter() - start:.3f}s")
    return result


class TimedScope:
    """A context that tells how long its body took."""

    def __init__(self, msg: str = "", printfn: Callable[..., Any] = eprint) -> None:
        self._msg = msg
        self._printfn = printfn
        self._start = 0.0
        self._error: object = None

    def __enter__(self) -> TimedScope:
        self._start = time.perf_counter()
        return self

    def __exit__(self, *exception: object) -> None:
        failed = "" if self._error is None else f" ({self._error})"
        self._printfn(f"{self._msg}{time.perf_counter() - self._start:.3f}s{failed}")

    def set_error(self, error: object) -> None:
        """Tell this beside the time."""
        self._error = error


def parallel_work(
    num_workers: int, fn: Callable[..., T], *args: Sequence[Any], **kwargs: Any
) -> list[T]:
    """What `fn` returns for each row of `args`, computed in `num_workers` threads; in their
    order."""
    with ThreadPoolExecutor(max_workers=num_workers) as pool:
        futures = [pool.submit(fn, *row, **kwargs) for row in zip(*args, strict=True)]
        return [future.result() for future in futures]
