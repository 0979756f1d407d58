"""The profiler service over gRPC, which the capture buttons of XProf and TensorBoard ask.

Needs the package `grpcio`. The few messages are protocol buffers of few fields, read and written
here by hand, as _xplane.py does.
"""

from __future__ import annotations

import pathlib
import re
from collections.abc import Callable
from concurrent import futures
from typing import Any

from torch_xla import _files
from torch_xla.debug import _xplane

_SERVICE = "tensorflow.ProfilerService"
_PROFILE = f"/{_SERVICE}/Profile"
# Of ProfileRequest:
_DURATION_MS, _REPOSITORY_ROOT, _SESSION_ID, _HOST_NAME = 1, 5, 6, 7
# Of ProfileResponse, and of the ProfileToolData in it:
_TOOL_DATA, _EMPTY_TRACE = 6, 7
_TOOL_NAME, _TOOL_CONTENT = 1, 2
# Under this name a response carries the profile itself, for callers without a repository.
_OUR_TOOL = "xplane.pb"
_MAX_DURATION_MS = 3_600_000
_UNLIMITED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]

Capture = Callable[[int], bytes]


def is_available() -> bool:
    try:
        import grpc  # noqa: F401
    except ImportError:
        return False
    return True


def _values(message: bytes) -> dict[int, Any]:
    """A message's fields that stand once."""
    return {number: value for number, value, _ in _xplane.fields(message)}


def _name(values: dict[int, Any], field: int) -> str:
    """A file's or folder's name out of a request. It comes from the network: no path."""
    name = re.sub(r"[^\w.-]", "_", values.get(field, b"").decode(errors="replace"))
    if not name.strip("."):
        raise ValueError("a profile request needs a session_id and a host_name")
    return name


def _answer(request: bytes, capture: Capture) -> bytes:
    values = _values(request)
    duration: Any = values.get(_DURATION_MS, 0)
    if not isinstance(duration, int) or not 0 < duration <= _MAX_DURATION_MS:
        raise ValueError(f"duration_ms must be from 1 to {_MAX_DURATION_MS}, got {duration}")
    root: Any = values.get(_REPOSITORY_ROOT, b"")
    folder = pathlib.Path(root.decode()) / _name(values, _SESSION_ID) if root else None
    space = capture(duration)
    is_empty = _xplane.is_empty(space)
    if folder is None:
        tool = _xplane.text_field(_TOOL_NAME, _OUR_TOOL) + _xplane.bytes_field(_TOOL_CONTENT, space)
        return _xplane.bytes_field(_TOOL_DATA, tool) + _xplane.number_field(_EMPTY_TRACE, is_empty)
    # The caller looks there for it: both share a file system.
    folder.mkdir(parents=True, exist_ok=True)
    with _files.replacing(folder / f"{_name(values, _HOST_NAME)}.xplane.pb") as file:
        file.write(space)
    return _xplane.number_field(_EMPTY_TRACE, is_empty)


class Server:
    """Answers at `host`:`port` until `stop`.

    Args:
        capture: records for so many milliseconds and returns the XSpace; RuntimeError while another
            one records.
    """

    def __init__(self, host: str, port: int, capture: Capture) -> None:
        import grpc

        def profile(request: bytes, context: Any) -> bytes:
            try:
                return _answer(request, capture)
            except ValueError as error:
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
            except RuntimeError as error:
                context.abort(grpc.StatusCode.ALREADY_EXISTS, str(error))
            except OSError as error:
                context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
            raise AssertionError("abort raises")

        # Without serializers, messages are bytes.
        handlers = {"Profile": grpc.unary_unary_rpc_method_handler(profile)}
        self._server = grpc.server(
            futures.ThreadPoolExecutor(max_workers=2, thread_name_prefix="xla-profiler"),
            handlers=[grpc.method_handlers_generic_handler(_SERVICE, handlers)],
            options=[*_UNLIMITED, ("grpc.so_reuseport", 0)],
        )
        try:
            self._port = self._server.add_insecure_port(f"{host}:{port}")
        except RuntimeError as error:
            raise OSError(f"start_server: can't listen at {host}:{port}: {error}") from None
        self._server.start()

    @property
    def port(self) -> int:
        return int(self._port)

    def stop(self) -> None:
        """End it; its port is free again."""
        self._server.stop(grace=None).wait()


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
