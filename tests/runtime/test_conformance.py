"""What a plugin supports is told, of plugins that are not ours and of claims that do not hold."""

from __future__ import annotations

import importlib.metadata
import os
import pathlib
import signal

import pytest
from processes import run_in_process

from torch_xla import _claims, conformance

pytestmark = pytest.mark.optimized  # other plugins may know no option of ours

# A newer plugin than ours, made for another program.
PACKAGE = "lammps-jax-pjrt-cpu"
# What it lacks, as ours does; there may be several of its devices.
UNSUPPORTED = ("memory in use", "a trace of the device", "transfers between devices")


@pytest.fixture(scope="module")
def newer():
    """The path of its library."""
    files = importlib.metadata.files(PACKAGE) or []
    (path,) = (str(f.locate()) for f in files if f.name.endswith(".so") and "pjrt" in f.name)
    return path


def test_a_foreign_plugin_is_judged(newer):
    lines = []
    assert conformance.main([newer], lines.append) == 0, "\n".join(lines)
    *claims, total = lines
    assert claims[0].startswith("supported    a client starts")
    lacks = {line.split(maxsplit=1)[1] for line in claims if line.startswith("unsupported")}
    assert all(lack.startswith(UNSUPPORTED) for lack in lacks), lacks
    assert total == f"{len(claims) - len(lacks)} supported, {len(lacks)} unsupported, 0 failed"


def test_kind_of_a_library_is_its_platform(newer, tmp_path):
    code = "import torch_xla.runtime as xr; print(xr.device_type())"
    renamed = tmp_path / "plugin.so"
    renamed.symlink_to(newer)
    assert run_in_process(code, PJRT_LIBRARY_PATH=str(renamed), PJRT_DEVICE="") == "CPU"


def fail():
    raise ValueError("1 is not 2\nnor 3")


def lack():
    raise NotImplementedError("no such thing")


def test_outcomes_are_told_apart():
    assert conformance._try("a", lambda: "well") == ("a", "supported", "well")
    assert conformance._try("a", fail) == ("a", "FAILED", "ValueError: 1 is not 2")
    assert conformance._try("a", lack) == ("a", "unsupported", "no such thing")


def test_a_claim_that_ends_the_process_has_failed(tmp_path, monkeypatch):
    """The child's claims are replaced by a module that Python imports at its start."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\n"
        "if 'torch_xla.conformance' in ' '.join(sys.orig_argv):\n"
        "    import torch_xla._claims as claims\n"
        "    die = lambda: os.kill(os.getpid(), 9)\n"
        "    quit = lambda: os._exit(3)\n"
        "    well = lambda: print('noise')\n"
        "    claims.claims = lambda: [('a', well), ('b', die), ('c', well), ('d', quit)]\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    assert list(conformance.examine(["a", "b", "c", "d"])) == [
        ("a", "supported", ""),
        ("b", "FAILED", f"the process ended by {signal.SIGKILL.name}"),
        ("c", "supported", ""),
        ("d", "FAILED", "the process ended with status 3"),
    ]


def test_without_a_client_nothing_else_is_tried(tmp_path):
    library = pathlib.Path(tmp_path, "empty.so")
    library.touch()
    lines = []
    assert conformance.main([str(library)], lines.append) == 1
    assert [line.split()[0] for line in lines] == ["FAILED", "0"]
    assert "could not be started" in lines[0] and str(library) in lines[0]


def test_a_missing_library_is_told(capsys):
    with pytest.raises(SystemExit):
        conformance.main(["/nowhere.so"])
    assert "/nowhere.so: there is no such file" in capsys.readouterr().err


def test_claims_have_names_of_their_own():
    names = [name for name, _ in _claims.claims()]
    assert len(names) == len(set(names)) > 30
