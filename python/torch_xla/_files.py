"""Writing files so that a reader, or the next run, never sees half of one."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
from collections.abc import Iterator
from typing import IO

_TEMPORARY = re.compile(r"\..*\.[0-9a-f]{8}\.xla-tmp")
# Names end at 255 bytes, of which a character has up to four.
_LONGEST_STEM = 50

_swept: set[str] = set()  # folders, by this process


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str], mode: str = "wb") -> Iterator[IO[bytes]]:
    """A file that becomes `path` at the end of the body, in one step. After a failure, or if the
    process is killed, `path` is what it was; what a killed process leaves is removed by the next
    one that writes to the folder."""
    target = os.fspath(path)
    folder, name = os.path.split(target)
    _sweep(folder or ".")
    number, temporary = _create(folder, name, _rights_of(target))
    try:
        with os.fdopen(number, mode) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            # Before it is closed, and so unlocked: from then on it would be taken for abandoned.
            os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def _rights_of(path: str) -> int | None:
    try:
        return os.stat(path).st_mode & 0o777
    except FileNotFoundError:
        return None


def _create(folder: str, name: str, rights: int | None) -> tuple[int, str]:
    """A new file, locked. Without `rights` it has those that the umask leaves."""
    while True:
        unique = f".{name[:_LONGEST_STEM]}.{secrets.token_hex(4)}.xla-tmp"
        path = os.path.join(folder, unique)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            number = os.open(path, flags, 0o666 if rights is None else rights)
        except FileExistsError:
            continue
        with contextlib.suppress(OSError):  # some file systems have no locks
            fcntl.flock(number, fcntl.LOCK_EX)
        # A sweep that came between has taken it away.
        if os.fstat(number).st_nlink > 0:
            break
        os.close(number)
    if rights is not None:
        os.fchmod(number, rights)
    return number, path


def _sweep(folder: str) -> None:
    """Remove the temporary files of processes that were killed: those that nobody has locked."""
    known_as = os.path.realpath(folder)
    if known_as in _swept:
        return
    _swept.add(known_as)
    # Whether a file can be made there is for whoever makes it to say.
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if _TEMPORARY.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                _remove_if_abandoned(entry.path)


def _remove_if_abandoned(path: str) -> None:
    with contextlib.suppress(OSError):
        number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(path)
        finally:
            os.close(number)
