"""Files by path, for scripts that read and write them through this module.

Paths in Google's cloud storage (`gs://...`) are not served: mount the bucket, or use a library.
"""

from __future__ import annotations

import builtins
import glob as _glob
import os
import shutil
from typing import IO, Any, NamedTuple

CLOUD_STORAGE_PREFIX = "gs://"


class GcsFile(NamedTuple):
    """What `stat` and `list` tell of a file."""

    path: str
    size: int
    mtime: float


def is_gcs_path(path: str) -> bool:
    """Whether a path is one in cloud storage."""
    return path.startswith(CLOUD_STORAGE_PREFIX)


def _local(path: str) -> str:
    if is_gcs_path(path):
        raise NotImplementedError(
            f"{path}: cloud storage is not served; mount the bucket and pass a path in it"
        )
    return path


def generic_open(path: str, mode: str = "r", encoding: str | None = None) -> IO[Any]:
    """`open`."""
    return builtins.open(_local(path), mode, encoding=encoding)


def generic_read(path: str) -> bytes:
    """The content of a file."""
    with builtins.open(_local(path), "rb") as file:
        return file.read()


def generic_write(output_string: bytes | str, path: str, makedirs: bool = False) -> None:
    """Write a file, under another name first, so that no one sees half of it."""
    target = _local(path)
    if makedirs and os.path.dirname(target):
        os.makedirs(os.path.dirname(target), exist_ok=True)
    data = output_string.encode() if isinstance(output_string, str) else output_string
    part = f"{target}.part{os.getpid()}"
    with builtins.open(part, "wb") as file:
        file.write(data)
    os.replace(part, target)


def generic_glob(pattern: str, recursive: bool = False) -> builtins.list[str]:
    """The paths that a pattern matches, sorted."""
    return sorted(_glob.glob(_local(pattern), recursive=recursive))


def stat(path: str) -> GcsFile:
    """Size and time of a file."""
    found = os.stat(_local(path))
    return GcsFile(path, found.st_size, found.st_mtime)


def list(path: str) -> builtins.list[GcsFile]:
    """Size and time of the files in a folder."""
    return [stat(entry.path) for entry in os.scandir(_local(path)) if entry.is_file()]


def remove(path: str) -> None:
    """Delete a file."""
    os.remove(_local(path))


def rmtree(path: str) -> None:
    """Delete a folder and what is in it."""
    shutil.rmtree(_local(path))
