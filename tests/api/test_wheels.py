"""One wheel holds the libraries for several versions of torch."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile

import pytest
from clone import ROOT
from merge_wheels import merge

NAME = "torch_pjrt-2.13.0-cp311-cp311-linux_x86_64.whl"
INFO = "torch_pjrt-2.13.0.dist-info"


def wheel(folder, torch, core=b"core", name=NAME):
    folder = folder / torch
    folder.mkdir()
    with zipfile.ZipFile(folder / name, "w") as archive:
        archive.writestr("torch_xla/lib/libtorch_xla_core.so", core)
        archive.writestr(f"torch_xla/lib/torch-{torch}/libtorch_xla.so", torch)
        archive.writestr(
            f"{INFO}/METADATA", "Metadata-Version: 2.1\nName: torch-pjrt\nVersion: 2.13.0\n"
        )
        archive.writestr(f"{INFO}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: false\n")
        archive.writestr(f"{INFO}/RECORD", "not this one")
    return folder / name


def test_merged_wheel_has_the_libraries_of_all_and_installs(tmp_path):
    merged = merge([wheel(tmp_path, "2.13"), wheel(tmp_path, "2.15")], tmp_path / "out")
    assert merged == tmp_path / "out" / NAME
    unpacked = tmp_path / "installed"
    if re.match(r"3\.11\.", sys.version):  # pip checks names, sums and the list of files
        command = ["-m", "pip", "install", "--no-deps", "--no-index", "--target", unpacked, merged]
        subprocess.run([sys.executable, *command], check=True, capture_output=True, timeout=300)
        lib = unpacked / "torch_xla" / "lib"
        assert (lib / "libtorch_xla_core.so").read_text() == "core"
        assert (lib / "torch-2.13" / "libtorch_xla.so").read_text() == "2.13"
        assert (lib / "torch-2.15" / "libtorch_xla.so").read_text() == "2.15"
    with zipfile.ZipFile(merged) as archive:
        record = archive.read(f"{INFO}/RECORD").decode()
    assert len(record.splitlines()) == 6 and "not this one" not in record


def test_wheels_of_different_trees_are_refused(tmp_path):
    wheels = [wheel(tmp_path, "2.13"), wheel(tmp_path, "2.15", core=b"other")]
    with pytest.raises(ValueError, match=r"2\.15.*libtorch_xla_core\.so is another one"):
        merge(wheels, tmp_path / "out")


def test_wheels_of_different_platforms_are_refused(tmp_path):
    wheels = [wheel(tmp_path, "2.13"), wheel(tmp_path, "2.15", name=NAME.replace("311", "312"))]
    with pytest.raises(ValueError, match="must be of one version and platform, got torch_pjrt"):
        merge(wheels, tmp_path / "out")


def test_makefile_merges_every_supported_torch():
    """`make wheel` names a release of each minor version that pyproject.toml supports."""
    project = (ROOT / "pyproject.toml").read_text()
    oldest, untested = re.search(r"torch>=2\.(\d+),<2\.(\d+)", project).groups()
    named = re.search(r"^TORCHES \?= (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[1]
    minors = [int(version.split(".")[1]) for version in named.split()]
    assert minors == [*range(int(oldest), int(untested))]
