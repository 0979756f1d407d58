"""The two files of a profile: XSpace, which TensorBoard and XProf open, and the JSON of trace
events, which Perfetto and chrome://tracing open.

XSpace is a protocol buffer of few messages, written here by hand. A space has planes (a host, a
device), a plane has lines (a thread), a line has events. Names stand once per plane in a table.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

_HOST_PLANE = "/host:CPU"
_DEVICE_PLANE = "/device:CUSTOM:"


@dataclass(frozen=True)
class Event:
    name: str
    line: str
    start_ns: int
    duration_ns: int
    stats: dict[str, Any] = field(default_factory=dict)

    @property
    def is_on_device(self) -> bool:
        return self.line.startswith("xla:")


def events_of(recorded: Iterable[tuple[str, str, str, int, int]], start_ns: int) -> list[Event]:
    """What `_XLAC._stop_tracing` gave, in the order of the beginnings, with times from `start_ns`
    on: viewers begin at zero. What began before is cut."""
    events = [
        Event(
            name,
            line,
            max(start - start_ns, 0),
            min(duration, max(start + duration - start_ns, 0)),
            json.loads(detail) if detail else {},
        )
        for name, line, detail, start, duration in recorded
    ]
    return sorted(events, key=lambda event: event.start_ns)


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def number_field(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def bytes_field(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def text_field(number: int, value: str) -> bytes:
    return bytes_field(number, value.encode())


class _Names:
    """The table of the names of a plane's events or stats, and their numbers."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def __getitem__(self, name: str) -> int:
        return self._numbers.setdefault(name, len(self._numbers) + 1)

    def encoded(self, field_number: int) -> bytes:
        # A map is a repeated message of key and value.
        entries = (
            number_field(1, number) + bytes_field(2, number_field(1, number) + text_field(2, name))
            for name, number in self._numbers.items()
        )
        return b"".join(bytes_field(field_number, entry) for entry in entries)


class _Plane:
    def __init__(self, number: int, name: str) -> None:
        self._head = number_field(1, number) + text_field(2, name)
        self._events = _Names()
        self._stats = _Names()
        self._lines: list[bytes] = []

    def add_line(self, name: str, events: list[Event]) -> None:
        start = min(event.start_ns for event in events)
        number = len(self._lines) + 1
        line = number_field(1, number) + text_field(2, name) + number_field(3, start)
        body = b"".join(bytes_field(4, self._event(event, start)) for event in events)
        self._lines.append(line + body)

    def _event(self, event: Event, line_start: int) -> bytes:
        picoseconds = 1000
        encoded = number_field(1, self._events[event.name])
        encoded += number_field(2, (event.start_ns - line_start) * picoseconds)
        encoded += number_field(3, event.duration_ns * picoseconds)
        return encoded + b"".join(bytes_field(4, self._stat(*stat)) for stat in event.stats.items())

    def _stat(self, name: str, value: Any) -> bytes:
        head = number_field(1, self._stats[name])
        if isinstance(value, int):
            return head + number_field(4, value)
        return head + text_field(5, str(value))

    def encoded(self) -> bytes:
        lines = b"".join(bytes_field(3, line) for line in self._lines)
        return self._head + lines + self._events.encoded(4) + self._stats.encoded(5)


def fields(message: bytes) -> Iterator[tuple[int, int | bytes, bytes]]:
    """The number, the value and the bytes of each field of a message.

    Raises:
        ValueError: it is no protocol buffer.
    """
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            if at >= len(message) or shift > 63:
                raise ValueError("a protocol buffer ends too early")
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    sizes = {1: 8, 5: 4}  # of the kinds of fixed width
    while at < len(message):
        start = at
        key = varint()
        kind = key & 7
        if kind == 0:
            value: int | bytes = varint()
        else:
            if kind not in (2, *sizes):
                raise ValueError(f"a protocol buffer has a field of the unknown kind {kind}")
            size = sizes[kind] if kind in sizes else varint()
            if at + size > len(message):
                raise ValueError("a protocol buffer ends too early")
            value, at = message[at : at + size], at + size
        yield key >> 3, value, message[start:at]


def shifted(space: bytes, start_ns: int) -> bytes:
    """A serialized XSpace, as plugins write it, with times from `start_ns` on in the place of times
    since the epoch."""

    def line(message: bytes) -> bytes:
        return b"".join(
            number_field(3, value - start_ns) if number == 3 and isinstance(value, int) else raw
            for number, value, raw in fields(message)
        )

    def plane(message: bytes) -> bytes:
        return b"".join(
            bytes_field(3, line(value)) if number == 3 and isinstance(value, bytes) else raw
            for number, value, raw in fields(message)
        )

    return b"".join(
        bytes_field(1, plane(value)) if number == 1 and isinstance(value, bytes) else raw
        for number, value, raw in fields(space)
    )


def xspace(events: list[Event], hostname: str) -> bytes:
    """The events as a serialized XSpace. What a plugin recorded can be appended: joined messages
    of this kind are one."""
    planes: dict[str, _Plane] = {}
    for line, on_line in _by_line(events):
        name = _DEVICE_PLANE + line if on_line[0].is_on_device else _HOST_PLANE
        plane = planes.setdefault(name, _Plane(len(planes) + 1, name))
        plane.add_line("programs" if on_line[0].is_on_device else line, on_line)
    return b"".join(bytes_field(1, plane.encoded()) for plane in planes.values()) + text_field(
        4, hostname
    )


def perfetto(events: list[Event]) -> bytes:
    """The events as gzipped JSON of trace events."""
    processes = {False: 1, True: 2}
    rows: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}}
        for pid, name in ((1, "host"), (2, "devices"))
    ]
    for number, (line, on_line) in enumerate(_by_line(events), start=1):
        where = {"pid": processes[on_line[0].is_on_device], "tid": number}
        rows.append({"ph": "M", "name": "thread_name", "args": {"name": line}, **where})
        rows += (
            {
                "ph": "X",
                "name": event.name,
                "ts": event.start_ns / 1000,
                "dur": event.duration_ns / 1000,
                "args": event.stats,
                **where,
            }
            for event in on_line
        )
    text = json.dumps({"displayTimeUnit": "ns", "traceEvents": rows})
    return gzip.compress(text.encode())


def _by_line(events: list[Event]) -> Iterator[tuple[str, list[Event]]]:
    lines: dict[str, list[Event]] = {}
    for event in events:
        lines.setdefault(event.line, []).append(event)
    yield from lines.items()


def is_empty(space: bytes) -> bool:
    """Whether a serialized XSpace has no planes."""
    return not any(number == 1 for number, _, _ in fields(space))


def hostname_of(space: bytes) -> str:
    """The host that a serialized XSpace names."""
    names = [value for number, value, _ in fields(space) if number == 4]
    return names[0].decode(errors="replace") if names and isinstance(names[0], bytes) else "host"
