"""Profiles: what the host and the devices did when, as files that TensorBoard, XProf and Perfetto
open.

A profile is taken in this process (`start_trace`, `stop_trace`) or asked for from another one
(`start_server` here, `trace` there). It has the annotations of the program (`Trace`, `StepTrace`,
`trace_me`), compilations, transfers and waits, the programs on each device, and what the plugin
itself records. While none is taken, an annotation costs about a microsecond.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import http.client
import http.server
import json
import os
import pathlib
import select
import socket
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

from torch_xla import _XLAC, _barriers, _causes, _files, _other_names
from torch_xla._replicas import world
from torch_xla.debug import _captures, _profiler_service, _xplane
from torch_xla.debug._captures import Captures
from torch_xla.debug._profile_folder import ProfileFolder

_F = TypeVar("_F", bound=Callable[..., Any])
_lock = threading.Lock()
# Of the trace that is being taken; there is one at a time.
_log_dir: str | None = None
_start_ns = 0


class Trace:
    """Names what happens in the body of a `with` statement.

    The name stands in profiles, and with `XLA_IR_DEBUG` or `XLA_HLO_DEBUG` before the names of the
    operations that are recorded in the body.

    Args:
        name: what a profile shows.
        kwargs: numbers or texts that it shows with it.
    """

    def __init__(self, name: str, **kwargs: Any) -> None:
        self._name = name
        self._stats = kwargs
        self._outer_scope = ""
        self._start = 0

    def __enter__(self) -> Trace:
        self._outer_scope = _XLAC._set_scope(self._name)
        if self._outer_scope:
            _XLAC._set_scope(f"{self._outer_scope}/{self._name}")
        self._start = time.time_ns() if _XLAC._tracing_is_on() else 0
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        _XLAC._set_scope(self._outer_scope)
        if self._start and _XLAC._tracing_is_on():
            detail = json.dumps(self._stats, default=str) if self._stats else ""
            duration = time.time_ns() - self._start
            _XLAC._add_trace_event(self._name, detail, self._start, duration)


class StepTrace(Trace):
    """As `Trace`, for one step of a loop: ends with a barrier.

    Args:
        name: what a profile shows.
        kwargs: as for `Trace`; `step_num=` is the number by which XProf groups steps.
    """

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            with _causes.because("exit of a StepTrace"):
                _barriers.sync()
        super().__exit__(kind, error, traceback)


def trace_me(scope: str) -> Callable[[_F], _F]:
    """A decorator: every call of the function is a `Trace` of that name."""

    def decorate(function: _F) -> _F:
        @functools.wraps(function)
        def traced(*args: Any, **kwargs: Any) -> Any:
            with Trace(scope):
                return function(*args, **kwargs)

        return traced  # type: ignore[return-value]

    return decorate


def start_trace(log_dir: str) -> None:
    """Begin a profile that `stop_trace` writes into `log_dir`.

    Raises:
        RuntimeError: one is being taken already.
    """
    global _log_dir
    with _lock:
        _begin()
        _log_dir = os.fspath(log_dir)


def stop_trace() -> str:
    """End the profile and write it: `log_dir`/plugins/profile/<time>/<host>.xplane.pb for
    TensorBoard and XProf, <host>.perfetto.json.gz beside it for ui.perfetto.dev.

    Programs that are still running are waited for.

    Returns:
        The folder of the two files.

    Raises:
        RuntimeError: none is being taken.
    """
    _barriers.wait_device_ops()
    with _lock:
        events, space = _finish()
        assert _log_dir is not None
        return _write(_log_dir, socket.gethostname(), space, _xplane.perfetto(events))


def _begin(max_events: int | None = None) -> None:
    global _start_ns
    _XLAC._start_tracing(max_events)
    _start_ns = time.time_ns()
    try:
        _XLAC._start_device_trace()
    except BaseException:
        _XLAC._stop_tracing()
        raise


def _finish() -> tuple[list[_xplane.Event], bytes]:
    events = _xplane.events_of(_XLAC._stop_tracing(), _start_ns)
    space = _xplane.xspace(events, socket.gethostname())
    return events, space + _xplane.shifted(_XLAC._stop_device_trace(), _start_ns)


def _discard() -> None:
    _XLAC._discard_trace()
    _XLAC._stop_device_trace()


def _write(log_dir: str, host: str, space: bytes, perfetto: bytes | None) -> str:
    run = time.strftime("%Y_%m_%d_%H_%M_%S")
    parent = pathlib.Path(log_dir) / "plugins" / "profile"
    folder = parent / run
    number = 1
    while folder.exists():
        number += 1
        folder = parent / f"{run}_{number}"
    folder.mkdir(parents=True)
    with _files.replacing(folder / f"{host}.xplane.pb") as file:
        file.write(space)
    if perfetto is not None:
        with _files.replacing(folder / f"{host}.perfetto.json.gz") as file:
            file.write(perfetto)
    return str(folder)


class _Handler(http.server.BaseHTTPRequestHandler):
    """Answers POST /profile?duration_ms=N with the XSpace of the next N milliseconds."""

    timeout = 10  # of reading a request
    server: _HttpService

    def do_POST(self) -> None:
        url = urllib.parse.urlsplit(self.path)
        query = urllib.parse.parse_qs(url.query)
        try:
            if url.path != "/profile":
                raise ValueError("expected /profile?duration_ms=N")
            duration = int(query.get("duration_ms", ["0"])[0])
            space = self.server.captures.take(duration, self._is_gone)
        except ValueError as error:
            self.send_error(400, str(error))
            return
        except RuntimeError as error:
            self.send_error(409, str(error))
            return
        self.send_response(200)
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", str(len(space)))
        self.end_headers()
        self.wfile.write(space)

    def _is_gone(self) -> bool:
        """Whether the client has closed the connection."""
        if not select.select([self.connection], [], [], 0)[0]:
            return False
        try:
            return not self.connection.recv(1, socket.MSG_PEEK)
        except OSError:
            return True

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: a capture is no news."""


class _HttpService(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], captures: Captures) -> None:
        super().__init__(address, _Handler)
        self.captures = captures

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing: a client that goes away is no news either."""


class _HttpServer:
    """What serves where gRPC is not installed. It writes no files."""

    def __init__(self, host: str, port: int, captures: Captures, folder: ProfileFolder) -> None:
        self.log_dir = folder.path
        self._captures = captures
        self._server = _HttpService((host, port), captures)
        threading.Thread(
            target=self._server.serve_forever, name="xla-profiler", daemon=True
        ).start()
        atexit.register(self.stop)

    @property
    def port(self) -> int:
        return self._server.server_address[1]

    def stop(self) -> None:
        """End it and the profile that it takes; its port is free again."""
        atexit.unregister(self.stop)
        self._captures.stop()
        self._server.shutdown()
        self._server.server_close()


def start_server(
    port: int,
    only_on_master: bool = True,
    host: str = "localhost",
    log_dir: str | os.PathLike[str] | None = None,
) -> Any:
    """Let other processes take profiles of this one, with `trace`. Keep what is returned.

    With the package `grpcio`, XProf's and TensorBoard's capture buttons can do so too.

    A profile lasts ten minutes and has 250,000 events of the host at most. It ends when the client
    goes away, with `stop()` of what is returned, and at the end of the process. One is taken at a
    time; who asks meanwhile is told for how long.

    Args:
        port: where it listens; 0 chooses one, see `port` of what is returned.
        only_on_master: start it on the first replica of the host only; None elsewhere.
        host: the address to listen at. Whoever reaches it may take profiles: the default serves
            this host alone, "0.0.0.0" all networks.
        log_dir: the folder that profiles may be written into. XProf says into which folder a
            profile shall go: that must be this one or lie in it. By default a new folder for
            temporary files, of this user alone: `log_dir` of what is returned.

    Raises:
        OSError: the port is taken.
        ValueError: the port is none.
    """
    _captures.checked_port(port)
    if only_on_master and not world.is_master_ordinal():
        return None
    is_grpc = _profiler_service.is_available()
    server: Any = _profiler_service.Server if is_grpc else _HttpServer
    return server(
        host, port, Captures(_begin, lambda: _finish()[1], _discard), ProfileFolder(log_dir)
    )


def _ask(service_addr: str, duration_ms: int, timeout_s: float) -> bytes:
    """The XSpace of the next milliseconds of the process that serves there."""
    address = service_addr.removeprefix("http://").removeprefix("grpc://")
    if _profiler_service.is_available():
        # One without gRPC does not answer this.
        with contextlib.suppress(ConnectionError):
            return _profiler_service.ask(address, duration_ms, timeout_s)
    url = f"http://{address}/profile?duration_ms={duration_ms}"
    request = urllib.request.Request(url, method="POST")
    with urllib.request.urlopen(request, timeout=timeout_s) as answer:
        return bytes(answer.read())


def trace(
    service_addr: str,
    logdir: str,
    duration_ms: int = 1000,
    num_tracing_attempts: int = 3,
    host_tracer_level: int = 2,
    device_tracer_level: int = 1,
    delay_ms: int = 0,
    timeout_s: int = 120,
    interval_s: int = 5,
) -> str:
    """Take a profile of a process that called `start_server`, and write it into `logdir`.

    Args:
        service_addr: "localhost:9012", as the server listens.
        logdir: where TensorBoard or XProf looks.
        duration_ms: how long to record.
        num_tracing_attempts: how often to try when nothing happened in that time, or when the
            process does not answer.
        host_tracer_level: accepted for compatibility; all that is annotated is recorded.
        device_tracer_level: accepted for compatibility; what the plugin records is its choice.
        delay_ms: how long to wait before.
        timeout_s: how long to wait for the process to answer, beyond the duration.
        interval_s: how long to wait between attempts.

    Returns:
        The folder of the file.

    Raises:
        RuntimeError: all attempts failed.
    """
    del host_tracer_level, device_tracer_level
    time.sleep(delay_ms / 1000)
    problem: Exception | str = "nothing happened there"
    for attempt in range(num_tracing_attempts):
        if attempt > 0:
            time.sleep(interval_s)
        try:
            space = _ask(service_addr, duration_ms, timeout_s + duration_ms / 1000)
        except (RuntimeError, http.client.HTTPException, OSError) as error:
            problem = error
            continue
        if not _xplane.is_empty(space):
            return _write(logdir, _xplane.hostname_of(space), space, None)
    raise RuntimeError(f"trace: no profile of {service_addr}: {problem}")


def trace_detached(*args: Any, **kwargs: Any) -> threading.Thread:
    """`trace` in a thread of its own, which is returned; join it to wait for the files."""
    thread = threading.Thread(target=trace, args=args, kwargs=kwargs, name="xla-trace")
    thread.start()
    return thread


__getattr__ = _other_names.refusing(__name__)
