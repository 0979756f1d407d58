"""The backend by which `pip install .` builds: scikit-build-core's, for the installed torch.

pip builds in an environment of its own, which does not see what is installed. A torch of its own
choice there would make libraries that the installed one can't load, so one is asked for only where
none is installed. What is missing is told in a sentence, which pip shows.
"""

import sys

# pip asks for what the build requires before it reads requires-python.
if sys.version_info < (3, 11):  # noqa: UP036
    sys.exit(f"torch_xla needs Python 3.11 or newer, this is {sys.version.split()[0]}")

import functools
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from locate_packages import PACKAGES, directory_of

try:
    from scikit_build_core import build
    from scikit_build_core.errors import CMakeNotFoundError
except ModuleNotFoundError as error:
    sys.exit(
        f"torch_xla is built by scikit-build-core ({error}): run `pip install scikit-build-core`, "
        "or leave --no-build-isolation away"
    )

get_requires_for_build_sdist = build.get_requires_for_build_sdist
build_sdist = build.build_sdist


def _naming_cmake(step: Callable[..., str]) -> Callable[..., str]:
    @functools.wraps(step)
    def run(*args: Any, **kwargs: Any) -> str:
        try:
            return step(*args, **kwargs)
        except CMakeNotFoundError as error:
            sys.exit(f"torch_xla: {error}: run `pip install cmake ninja` for a newer one")

    return run


build_editable = _naming_cmake(build.build_editable)
build_wheel = _naming_cmake(build.build_wheel)
prepare_metadata_for_build_editable = _naming_cmake(build.prepare_metadata_for_build_editable)
prepare_metadata_for_build_wheel = _naming_cmake(build.prepare_metadata_for_build_wheel)


def _torch_unless_installed() -> list[str]:
    if directory_of(PACKAGES["TORCH"]) is not None:
        return []
    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    return [each for each in project["dependencies"] if each.startswith("torch>")]


def get_requires_for_build_wheel(config_settings: dict[str, Any] | None = None) -> list[str]:
    return [*build.get_requires_for_build_wheel(config_settings), *_torch_unless_installed()]


def get_requires_for_build_editable(config_settings: dict[str, Any] | None = None) -> list[str]:
    return [*build.get_requires_for_build_editable(config_settings), *_torch_unless_installed()]
