"""Makes one wheel of those that were built for several versions of torch, of one tree and with one
Python: each brings a folder of libraries for its torch, and the rest of them is the same.

python tools/merge_wheels.py --out dist torch-2.13/*.whl torch-2.15/*.whl
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import pathlib
import sys
import zipfile
from collections.abc import Sequence


def _contents(wheel: pathlib.Path) -> dict[str, bytes]:
    """Its files but the list of them, by name."""
    with zipfile.ZipFile(wheel) as archive:
        names = (info.filename for info in archive.infolist() if not info.is_dir())
        return {name: archive.read(name) for name in names if not name.endswith("/RECORD")}


def _record(files: dict[str, bytes], name: str) -> str:
    lines = []
    for path, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        lines.append(f"{path},sha256={digest},{len(data)}\n")
    return "".join([*lines, f"{name},,\n"])


def merge(wheels: Sequence[pathlib.Path], out: pathlib.Path) -> pathlib.Path:
    """The path of one wheel in the folder `out` that has all files of `wheels`.

    Raises:
        ValueError: they are of different versions or platforms, or differ in a file that all have.
    """
    names = sorted({wheel.name for wheel in wheels})
    if len(names) != 1:
        raise ValueError(f"wheels must be of one version and platform, got {', '.join(names)}")
    files: dict[str, bytes] = {}
    for wheel in wheels:
        for name, data in _contents(wheel).items():
            if files.setdefault(name, data) != data:
                raise ValueError(f"{wheel}: {name} is another one than in a wheel before it")
    metadata = next(name for name in files if name.endswith(".dist-info/METADATA"))
    record = metadata.replace("METADATA", "RECORD")
    out.mkdir(parents=True, exist_ok=True)
    merged = out / names[0]
    with zipfile.ZipFile(merged, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, data in sorted(files.items()):
            archive.writestr(name, data)
        archive.writestr(record, _record(files, record))
    return merged


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("wheels", type=pathlib.Path, nargs="+")
    options = parser.parse_args()
    try:
        merged = merge(options.wheels, options.out)
    except ValueError as error:
        sys.exit(f"merge_wheels: {error}")
    print(f"{merged}: {merged.stat().st_size / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
