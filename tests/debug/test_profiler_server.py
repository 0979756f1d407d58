"""The profiler's server, as seen by somebody who asks for too much: where it writes, how long it
records, and who ends that."""

from __future__ import annotations

import contextlib
import pathlib
import socket
import stat
import subprocess
import sys
import textwrap
import threading
import time
import urllib.error
import urllib.request

import pytest

import torch_xla.debug.profiler as xp
from torch_xla.debug import _captures, _profiler_service, _xplane

LONGEST = _captures.MAX_DURATION_MS


@pytest.fixture(params=["grpc", "http"])
def protocol(request, monkeypatch):
    if request.param == "grpc":
        pytest.importorskip("grpc")
    else:
        monkeypatch.setattr(_profiler_service, "is_available", lambda: False)
    return request.param


def ask(server, duration_ms):
    return xp._ask(f"localhost:{server.port}", duration_ms, timeout_s=120)


@contextlib.contextmanager
def client(server, duration_ms):
    """Asks in a thread; gives a list that gets what it is told."""
    told: list[str] = []

    def body():
        while True:
            try:
                told.append(f"{len(ask(server, duration_ms))} bytes")
            except (RuntimeError, OSError) as error:
                if "another profile" in str(error):  # that of await_capture
                    continue
                told.append(str(error))
            return

    thread = threading.Thread(target=body)
    thread.start()
    try:
        yield told
    finally:
        thread.join()


def await_capture(server):
    """Returns when one is being taken, with what others are told."""
    while True:
        try:
            ask(server, 1)
        except (RuntimeError, urllib.error.HTTPError) as error:
            return str(error)
        time.sleep(0.01)


def await_own_capture(server):
    while server._captures._ends_at is None:
        time.sleep(0.01)


def test_one_who_asks_meanwhile_is_told_and_stop_ends_the_capture(protocol):
    server = xp.start_server(0)
    with client(server, LONGEST) as told:
        assert "another profile of this process is being taken, for " in await_capture(server)
        assert not told
        server.stop()
    assert "stopped while the profile was taken" in told[0]
    # Nothing is being taken any more.
    xp._begin()
    xp._discard()


def test_a_capture_ends_when_its_client_is_gone(protocol):
    served = b""
    deadline = time.monotonic() + LONGEST / 1000 / 5
    server = xp.start_server(0)
    try:
        if protocol == "grpc":
            import grpc

            with grpc.insecure_channel(f"localhost:{server.port}") as channel:
                request = _xplane.number_field(1, LONGEST)
                call = channel.unary_unary(_profiler_service._PROFILE).future(request)
                await_own_capture(server)
                call.cancel()
        else:
            with socket.create_connection(("localhost", server.port)) as connection:
                path = f"/profile?duration_ms={LONGEST}"
                connection.sendall(f"POST {path} HTTP/1.0\r\n\r\n".encode())
                await_own_capture(server)
        # It ends without anybody's help, long before its time: another one is served.
        while not served and time.monotonic() < deadline:
            with contextlib.suppress(RuntimeError, urllib.error.HTTPError):
                served = ask(server, 1)
            time.sleep(0.05)
    finally:
        server.stop()
    assert served


@pytest.mark.parametrize("duration", [0, LONGEST + 1, 10**15])
def test_durations_are_bounded(protocol, duration):
    server = xp.start_server(0)
    try:
        with pytest.raises((RuntimeError, urllib.error.HTTPError), match="duration_ms must be"):
            ask(server, duration)
    finally:
        server.stop()


def test_events_are_bounded(monkeypatch):
    monkeypatch.setattr(_captures, "MAX_EVENTS", 10)
    captures = _captures.Captures(
        xp._begin, lambda: b"%d events" % len(xp._finish()[0]), xp._discard
    )

    def is_gone():
        for _ in range(100):
            with xp.Trace("x"):
                pass
        return False

    assert captures.take(300, is_gone) == b"10 events"


@pytest.mark.parametrize("port", [-1, 65536, 65536 + 8080])
def test_ports_are_not_taken_modulo(protocol, port):
    with pytest.raises(ValueError, match=f"from 0 to 65535, got {port}"):
        xp.start_server(port)


def test_a_profile_cannot_leave_its_folder(tmp_path):
    grpc = pytest.importorskip("grpc")
    inside = tmp_path / "inside"
    outside = tmp_path / "outside"
    outside.mkdir()
    server = xp.start_server(0, log_dir=inside)
    (inside / "link").symlink_to(outside)
    (inside / "s").symlink_to(outside)
    (inside / "kept").mkdir()
    (outside / "file").write_text("untouched")
    (inside / "kept" / "h.xplane.pb").symlink_to(outside / "file")

    def request(root, session="s", host="h"):
        return (
            _xplane.number_field(1, 1)
            + _xplane.text_field(5, str(root))
            + _xplane.text_field(6, session)
            + _xplane.text_field(7, host)
        )

    try:
        with grpc.insecure_channel(f"localhost:{server.port}") as channel:
            profile = channel.unary_unary(_profiler_service._PROFILE)
            for root in (
                outside,
                "/",
                tmp_path,
                f"{inside}2",
                inside / "..",
                inside / ".." / "outside",
                inside / "link",
                inside / "link" / "deeper",
                inside,  # the session is a link
                "..",
            ):
                with pytest.raises(grpc.RpcError, match="are written into") as caught:
                    profile(request(root))
                assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
            assert [path.name for path in outside.iterdir()] == ["file"]
            for root in (inside / "new" / "deeper", "plugins", inside / "." / "x" / ".."):
                profile(request(root, "session"))
            profile(request(inside, "kept"))
    finally:
        server.stop()
    assert sorted(str(path.relative_to(inside)) for path in inside.rglob("*.pb")) == [
        "kept/h.xplane.pb",
        "new/deeper/session/h.xplane.pb",
        "plugins/session/h.xplane.pb",
        "session/h.xplane.pb",
    ]
    assert (outside / "file").read_text() == "untouched"


def test_without_a_folder_profiles_go_where_nobody_else_may(protocol):
    server = xp.start_server(0)
    server.stop()
    folder = pathlib.Path(server.log_dir)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    folder.rmdir()


def test_the_process_ends_though_a_profile_of_it_is_taken(protocol):
    code = f"""
        import sys
        import torch_xla.debug.profiler as xp
        from torch_xla.debug import _profiler_service
        if {protocol == "http"}:
            _profiler_service.is_available = lambda: False
        server = xp.start_server(0)
        print(server.port, flush=True)
        sys.stdin.readline()
        sys.exit(4)
    """
    command = [sys.executable, "-P", "-c", textwrap.dedent(code)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as p:

        class Other:
            port = int(p.stdout.readline())

        with client(Other, LONGEST) as told:
            await_capture(Other)
            p.stdin.write("\n")
            p.stdin.flush()
            assert p.wait(timeout=120) == 4
    assert told and "bytes" not in told[0]
