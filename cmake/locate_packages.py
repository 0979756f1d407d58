"""Prints where Python finds the packages that the build takes headers and libraries from.

One line `NAME=directory` each, for packages that are installed; nothing is imported. What is
installed beside the interpreter counts also where pip hides it, in an environment that it made for
the build.
"""

import sys
import sysconfig
from importlib.machinery import ModuleSpec, PathFinder

PACKAGES = {
    "TORCH": "torch",
    "XLA_CPU_PJRT": "xla_plugins.xla_cpu_pjrt",
    "JAXLIB": "jaxlib",
}


def directory_of(package: str) -> str | None:
    path = [*sys.path, sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    spec: ModuleSpec | None = None
    for part in package.split("."):
        spec = PathFinder.find_spec(part, path)
        if spec is None or not spec.submodule_search_locations:
            return None
        path = list(spec.submodule_search_locations)
    return path[0]


if __name__ == "__main__":
    for name, package in PACKAGES.items():
        directory = directory_of(package)
        if directory is not None:
            print(f"{name}={directory}")
