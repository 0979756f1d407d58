"""Where the profiler's server may write: one folder and what is in it, whatever a client names."""

from __future__ import annotations

import os
import pathlib
import tempfile

from torch_xla import _files


class ProfileFolder:
    """A folder that files can't leave, neither by `..` nor by links.

    Args:
        path: the folder, made if it is not there; None stands for a new one in the folder for
            temporary files, which this user alone may enter.
    """

    def __init__(self, path: str | os.PathLike[str] | None) -> None:
        if path is None:
            path = tempfile.mkdtemp(prefix="torch_xla_profiles_")
        else:
            os.makedirs(path, exist_ok=True)
        self.path = os.path.realpath(path)

    def inside(self, wanted: str) -> pathlib.Path:
        """The folder that a client names, resolved.

        Raises:
            ValueError: it lies elsewhere.
        """
        folder = os.path.realpath(os.path.join(self.path, wanted))
        if os.path.commonpath([folder, self.path]) != self.path:
            raise ValueError(
                f"profiles of this process are written into {self.path} and folders in it, not "
                f"into {wanted!r}: name such a folder, or give start_server another log_dir"
            )
        return pathlib.Path(folder)

    def write(self, wanted: str, name: str, content: bytes) -> None:
        """Makes the folder, if it is inside, and in it the file `name`."""
        self.inside(wanted).mkdir(parents=True, exist_ok=True)
        # Once more: what is there now is not what was there before.
        folder = self.inside(wanted)
        # The file replaces a link of its name and does not follow it.
        with _files.replacing(folder / name) as file:
            file.write(content)
