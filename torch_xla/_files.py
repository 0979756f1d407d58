"""Writing files so that a reader, or the next run, never sees half of one."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from typing import IO


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str], mode: str = "wb") -> Iterator[IO[bytes]]:
    """A file that becomes `path` at the end of the body, in one step. After a failure, or if the
    process is killed, `path` is what it was."""
    target = os.fspath(path)
    folder = os.path.dirname(target) or "."
    number, name = tempfile.mkstemp(prefix=f".{os.path.basename(target)}.", dir=folder)
    try:
        with os.fdopen(number, mode) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        # mkstemp gives no rights to others; a file that is made by open() has those of the umask.
        os.chmod(name, _mode_of(target))
        os.replace(name, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise


def _mode_of(path: str) -> int:
    try:
        return os.stat(path).st_mode & 0o777
    except FileNotFoundError:
        umask = os.umask(0)
        os.umask(umask)
        return 0o666 & ~umask
