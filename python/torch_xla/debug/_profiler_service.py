"""The profiler service over gRPC, which the capture buttons of XProf and TensorBoard ask.

Needs the package `grpcio`. The few messages are protocol buffers of few fields, read and written
here by hand, as _xplane.py does.
"""

from __future__ import annotations

import atexit
import functools
import re
import threading
import weakref
from collections.abc import Callable
from concurrent import futures
from typing import Any

from torch_xla.debug import _captures, _xplane
from torch_xla.debug._captures import Captures
from torch_xla.debug._profile_folder import ProfileFolder

_SERVICE = "tensorflow.ProfilerService"
_PROFILE = f"/{_SERVICE}/Profile"
# Of ProfileRequest:
_DURATION_MS, _REPOSITORY_ROOT, _SESSION_ID, _HOST_NAME = 1, 5, 6, 7
# Of ProfileResponse, and of the ProfileToolData in it:
_TOOL_DATA, _EMPTY_TRACE = 6, 7
_TOOL_NAME, _TOOL_CONTENT = 1, 2
# Under this name a response carries the profile itself, for callers without a repository.
_OUR_TOOL = "xplane.pb"
_UNLIMITED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
# A request is a few names; an answer is as large as what was recorded.
_SERVER_OPTIONS = [
    ("grpc.max_receive_message_length", 1 << 20),
    ("grpc.max_send_message_length", -1),
    ("grpc.so_reuseport", 0),
]
# One that records, those that are told so.
_MAX_REQUESTS = 16


def is_available() -> bool:
    try:
        import grpc  # noqa: F401
    except ImportError:
        return False
    return True


def _values(message: bytes) -> dict[int, Any]:
    """A message's fields that stand once."""
    return {number: value for number, value, _ in _xplane.fields(message)}


def _text(values: dict[int, Any], field: int, errors: str = "strict") -> str:
    text = values.get(field, b"")
    if not isinstance(text, bytes):
        raise ValueError(f"field {field} of a profile request must be a text")
    return text.decode(errors=errors)


def _name(values: dict[int, Any], field: int) -> str:
    """A file's or folder's name out of a request. It comes from the network: no path."""
    name = re.sub(r"[^\w.-]", "_", _text(values, field, errors="replace"))
    if not name.strip("."):
        raise ValueError("a profile request needs a session_id and a host_name")
    return name


def _answer(
    request: bytes, captures: Captures, folder: ProfileFolder, is_gone: Callable[[], bool]
) -> bytes:
    values = _values(request)
    duration = _captures.check_duration(values.get(_DURATION_MS, 0))
    root = _text(values, _REPOSITORY_ROOT)
    if root:
        # All that can be refused is, before anything is recorded.
        wanted = f"{root}/{_name(values, _SESSION_ID)}"
        name = f"{_name(values, _HOST_NAME)}.xplane.pb"
        folder.inside(wanted)
    space = captures.take(duration, is_gone)
    is_empty = _xplane.is_empty(space)
    if root:
        # The caller looks there for it: both share a file system.
        folder.write(wanted, name, space)
        return _xplane.number_field(_EMPTY_TRACE, is_empty)
    tool = _xplane.text_field(_TOOL_NAME, _OUR_TOOL) + _xplane.bytes_field(_TOOL_CONTENT, space)
    return _xplane.bytes_field(_TOOL_DATA, tool) + _xplane.number_field(_EMPTY_TRACE, is_empty)


class _DaemonThreads(futures.Executor):
    """A thread per call, which the interpreter does not wait for: `Server.stop` does, at exit too,
    when it has told them to end."""

    def __init__(self) -> None:
        self._threads: weakref.WeakSet[threading.Thread] = weakref.WeakSet()

    def submit(self, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        future: futures.Future[Any] = futures.Future()

        def run() -> None:
            try:
                future.set_result(call(*args, **kwargs))
            except BaseException as error:
                future.set_exception(error)

        thread = threading.Thread(target=run, name="xla-profiler", daemon=True)
        self._threads.add(thread)
        thread.start()
        return future

    def join(self) -> None:
        for thread in list(self._threads):
            thread.join()


def _stop(server: weakref.ref[Server]) -> None:
    if (alive := server()) is not None:
        alive.stop()


class Server:
    """Answers at `host`:`port` until `stop`, the end of the process or that of this object."""

    def __init__(self, host: str, port: int, captures: Captures, folder: ProfileFolder) -> None:
        import grpc

        def profile(request: bytes, context: Any) -> bytes:
            try:
                return _answer(request, captures, folder, lambda: not context.is_active())
            except ValueError as error:
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
            except RuntimeError as error:
                context.abort(grpc.StatusCode.ALREADY_EXISTS, str(error))
            except OSError as error:
                context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
            raise AssertionError("abort raises")

        # Without serializers, messages are bytes.
        handlers = {"Profile": grpc.unary_unary_rpc_method_handler(profile)}
        self.log_dir = folder.path
        self._captures = captures
        self._threads = _DaemonThreads()
        self._server = grpc.server(
            self._threads,
            handlers=[grpc.method_handlers_generic_handler(_SERVICE, handlers)],
            options=_SERVER_OPTIONS,
            maximum_concurrent_rpcs=_MAX_REQUESTS,
        )
        try:
            self._port = self._server.add_insecure_port(f"{host}:{port}")
        except RuntimeError as error:
            raise OSError(f"start_server: can't listen at {host}:{port}: {error}") from None
        self._server.start()
        self._at_exit = functools.partial(_stop, weakref.ref(self))
        atexit.register(self._at_exit)

    @property
    def port(self) -> int:
        return int(self._port)

    def stop(self) -> None:
        """End it and the profile that it takes; its port is free again."""
        atexit.unregister(self._at_exit)
        self._captures.stop()
        self._threads.join()
        # A moment to send what the clients are told.
        self._server.stop(grace=1).wait()


def ask(address: str, duration_ms: int, timeout_s: float) -> bytes:
    """The XSpace of the next `duration_ms` milliseconds of the process that serves there.

    Raises:
        ConnectionError: it does not answer, or it serves no profiles.
        RuntimeError: it says that it can't.
    """
    import grpc

    with grpc.insecure_channel(address, options=_UNLIMITED) as channel:
        call = channel.unary_unary(_PROFILE)
        try:
            answer = call(
                _xplane.number_field(_DURATION_MS, duration_ms),
                timeout=timeout_s,
                wait_for_ready=False,
            )
        except grpc.RpcError as error:
            code, details = error.code(), error.details()
            text = f"{code.name}: {details}"
            if code == grpc.StatusCode.UNAVAILABLE:
                raise ConnectionError(text) from None
            raise RuntimeError(text) from None
    tool = _values(_values(answer).get(_TOOL_DATA, b""))
    if tool.get(_TOOL_NAME) != _OUR_TOOL.encode():
        raise RuntimeError("the answer holds no profile")
    return bytes(tool.get(_TOOL_CONTENT, b""))
