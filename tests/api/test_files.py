"""Files that are replaced whole: their rights, and what killed writers leave."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading

import pytest

from torch_xla import _files

# Writes half of a file, says so, and waits.
HALF = """
import sys
from torch_xla import _files
with _files.replacing(sys.argv[1]) as file:
    file.write(b"half")
    print("written", flush=True)
    sys.stdin.read()
"""


def begin(path):
    child = subprocess.Popen(
        [sys.executable, "-P", "-c", HALF, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdout.readline() == b"written\n"
    return child


def write(path, content=b"whole"):
    _files._swept.clear()  # as in a process that has just started
    with _files.replacing(path) as file:
        file.write(content)


def rights(path):
    return stat.S_IMODE(os.stat(path).st_mode)


def test_what_killed_writers_leave_is_removed_by_the_next(tmp_path):
    target = tmp_path / "model.pt"
    with begin(target) as alive, begin(target) as killed:
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        (tmp_path / ".model.pt.notes").write_text("of the user")
        assert len(list(tmp_path.iterdir())) == 3
        write(tmp_path / "other.pt")
        # The one that is still writing is left alone, and ends well.
        names = {path.name for path in tmp_path.iterdir()}
        assert len(names) == 3 and names > {".model.pt.notes", "other.pt"}
        alive.communicate(b"")
        assert alive.returncode == 0
    assert {path.name for path in tmp_path.iterdir()} == {
        "model.pt",
        "other.pt",
        ".model.pt.notes",
    }
    assert target.read_bytes() == b"half"


def test_a_name_of_any_length_that_files_have_is_written(tmp_path):
    for name in ("x" * 255, "ü" * 127, "a"):
        write(tmp_path / name)
        assert (tmp_path / name).read_bytes() == b"whole"


@pytest.mark.parametrize("umask", [0o022, 0o027, 0o077, 0])
def test_new_files_have_the_rights_that_the_umask_leaves(tmp_path, umask):
    previous = os.umask(umask)
    try:
        write(tmp_path / "new")
    finally:
        os.umask(previous)
    assert rights(tmp_path / "new") == 0o666 & ~umask


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o444, 0o666])
def test_replaced_files_keep_their_rights(tmp_path, mode):
    path = tmp_path / "kept"
    path.write_bytes(b"old")
    path.chmod(mode)
    with _files.replacing(path) as file:
        # Nobody can read what is being written who could not read what was there.
        assert stat.S_IMODE(os.fstat(file.fileno()).st_mode) == mode
        file.write(b"new")
    assert rights(path) == mode and path.read_bytes() == b"new"


def test_other_threads_never_see_another_umask(tmp_path):
    is_done = threading.Event()
    seen = set()

    def watch():
        while not is_done.is_set():
            with open("/proc/self/status") as status:
                seen.update(line for line in status if line.startswith("Umask"))

    thread = threading.Thread(target=watch)
    thread.start()
    for _ in range(300):
        write(tmp_path / "file")
        os.unlink(tmp_path / "file")
    is_done.set()
    thread.join()
    assert len(seen) == 1
