"""`torch_xla.compile`: what runs in one call as one program."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar, overload

from torch_xla import _XLAC, _barriers, _causes

F = TypeVar("F", bound=Callable[..., Any])
CompileOptions = dict[str, str | bool | int | float]


def set_custom_compile_options(options: CompileOptions) -> None:
    """XLA flags, by name, for the programs that are compiled from now on; `{}` for none.

    They are part of what a program is known by: one that was compiled with other flags is compiled
    again.

    Raises:
        TypeError: it is no dict from names to texts and numbers.
    """
    _XLAC._set_custom_compile_options(_checked("set_custom_compile_options", options))


def _checked(what: str, options: CompileOptions) -> CompileOptions:
    if not isinstance(options, Mapping):
        raise TypeError(f"{what}: expected a dict of XLA flags, got {type(options).__name__}")
    for name, value in options.items():
        if not isinstance(name, str) or not isinstance(value, (str, bool, int, float)):
            raise TypeError(
                f"{what}: expected names of flags with texts, bools or numbers, got "
                f"{name!r}: {value!r}"
            )
    return dict(options)


@contextlib.contextmanager
def _held(switch: Callable[[Any], Any], value: Any) -> Iterator[None]:
    """A switch of this thread, which returns what it was, at a value; None: as it is."""
    if value is None:
        yield
        return
    before = switch(value)
    try:
        yield
    finally:
        switch(before)


class _Region:
    """What one use of `torch_xla.compile` asks for, and the programs that it has run."""

    def __init__(
        self,
        full_graph: bool,
        name: str,
        max_different_graphs: int | None,
        custom_compile_options: CompileOptions | None,
        dynamic: bool | None,
    ) -> None:
        self._full_graph = full_graph
        self._name = name
        self._max_different_graphs = max_different_graphs
        self._options = custom_compile_options
        self._dynamic = dynamic
        self._programs: dict[str, None] = {}

    @contextlib.contextmanager
    def run(self) -> Iterator[None]:
        with _causes.because(f"before torch_xla.compile of {self._name}"):
            _barriers.sync()
        was_suspended = _XLAC._suspend_eager_mode(True)
        try:
            with (
                _held(_XLAC._set_thread_compile_options, self._options),
                _held(_XLAC._set_thread_bounded_sizes, self._dynamic),
            ):
                before = _XLAC._set_runs_forbidden(self._full_graph)
                try:
                    yield
                finally:
                    _XLAC._set_runs_forbidden(before)
                self._finish()
        finally:
            _XLAC._suspend_eager_mode(was_suspended)

    def _finish(self) -> None:
        executed = _XLAC._computation_stats()[1]
        with _causes.because(f"torch_xla.compile of {self._name}"):
            _barriers.sync()
        if _XLAC._computation_stats()[1] == executed:
            return
        self._programs[_XLAC._last_program_key()] = None
        limit = self._max_different_graphs
        if limit is not None and len(self._programs) > limit:
            raise RuntimeError(
                f"torch_xla.compile: {self._name} has run {len(self._programs)} different "
                f"programs, and max_different_graphs is {limit}. Sizes or constants differ from "
                "call to call; "
                "PT_XLA_DEBUG_LEVEL=1 tells which. The programs: "
                + ", ".join(key[:8] for key in self._programs)
            )


@overload
def compile(f: F, *args: Any, **options: Any) -> F: ...
@overload
def compile(f: None = None, *args: Any, **options: Any) -> Any: ...


def compile(
    f: Callable[..., Any] | None = None,
    full_graph: bool = False,
    name: str | None = None,
    max_different_graphs: int | None = None,
    custom_compile_options: CompileOptions | None = None,
    dynamic: bool | None = None,
) -> Any:
    """Run what is recorded in a call as one program, launched when the call ends.

    As a wrapper, `step = torch_xla.compile(step)`; as a decorator, with or without arguments; or as
    a context, `with torch_xla.compile():`. There is a barrier before and after it, and `eager_mode`
    is off inside.

    Args:
        f: the function.
        full_graph: raise where something would run inside: where a value is read that is not
            computed yet, or a barrier stands.
        name: for messages; by default the function's.
        max_different_graphs: raise when the calls have run more programs than that.
        custom_compile_options: XLA flags for its programs, as in `set_custom_compile_options`.
        dynamic: True: where a call comes with other sizes than those before, it is compiled for all
            sizes up to a bound, if each of its operators has a rule for that; False: a program for
            each size; None: as `bounded_sizes` and `bounded_growth` of `torch_xla.settings` say.

    Raises:
        RuntimeError: what `full_graph` and `max_different_graphs` say.
        TypeError: an argument is not of its type.
    """
    if f is not None and not callable(f):
        raise TypeError(f"torch_xla.compile: expected a function, got {type(f).__name__}")
    if max_different_graphs is not None and not isinstance(max_different_graphs, int):
        raise TypeError(
            f"torch_xla.compile: max_different_graphs must be a number, got "
            f"{max_different_graphs!r}"
        )
    if dynamic is not None and not isinstance(dynamic, bool):
        raise TypeError(f"torch_xla.compile: dynamic must be True, False or None, got {dynamic!r}")
    if custom_compile_options is not None:
        custom_compile_options = _checked("torch_xla.compile", custom_compile_options)

    def region_of(function: Callable[..., Any] | None) -> _Region:
        default = getattr(function, "__name__", None) or type(function).__name__
        return _Region(
            full_graph,
            name or (default if function is not None else "a block"),
            max_different_graphs,
            custom_compile_options,
            dynamic,
        )

    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        region = region_of(function)

        @functools.wraps(function)
        def compiled(*args: Any, **kwargs: Any) -> Any:
            with region.run():
                return function(*args, **kwargs)

        return compiled

    return wrap(f) if f is not None else _ContextOrDecorator(region_of(None), wrap)


class _ContextOrDecorator:
    """What `torch_xla.compile(...)` without a function is: both of them."""

    def __init__(
        self, region: _Region, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]
    ) -> None:
        self._region = region
        self._wrap = wrap
        self._open: list[Any] = []

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return self._wrap(function)

    def __enter__(self) -> None:
        self._open.append(self._region.run())
        self._open[-1].__enter__()

    def __exit__(self, *error: Any) -> bool | None:
        suppressed: bool | None = self._open.pop().__exit__(*error)
        return suppressed
