"""A plugin whose collectives cross processes (spanning_plugin.cpp), built where it is first asked
for, and the environment of processes that use it."""

from __future__ import annotations

import functools
import importlib.util
import os
import pathlib
import subprocess
import tempfile

import torch_xla


def _folder_of(package: str) -> pathlib.Path:
    spec = importlib.util.find_spec(package)
    assert spec is not None and spec.submodule_search_locations is not None, package
    return pathlib.Path(next(iter(spec.submodule_search_locations)))


@functools.cache
def _library() -> str:
    source = pathlib.Path(__file__).with_name("spanning_plugin.cpp")
    target = pathlib.Path(tempfile.mkdtemp()) / "spanning_pjrt.so"
    root = source.parents[2]
    headers = [root / "src", root / "tests" / "cpp"]
    headers += [_folder_of(p) / "include" for p in ("xla_plugins.xla_cpu_pjrt", "jaxlib")]
    command = [os.environ.get("CXX", "c++"), "-std=c++20", "-O1", "-shared", "-fPIC"]
    command += [f"-I{folder}" for folder in headers]
    subprocess.run([*command, str(source), "-o", str(target)], check=True)
    return str(target)


def environment(count: int) -> dict[str, str]:
    """Of a host with so many devices."""
    return {
        "PJRT_DEVICE": "",  # what the plugin calls its platform
        "PJRT_LIBRARY_PATH": _library(),
        "SPANNING_PLUGIN_OF": torch_xla._plugins.resolve()[1],
        "SPANNING_DEVICES": str(count),
        "XLA_PERSISTENT_CACHE": "0",
    }
