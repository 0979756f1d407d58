"""Prints requirements/lock.txt: what `pip freeze` shows beyond train.txt and dev.txt."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def canonical(requirement: str) -> str:
    return re.sub(r"[-_.]+", "-", requirement.split("==")[0].strip().lower())


def main(pip: str) -> None:
    files = [ROOT / "requirements" / name for name in ("train.txt", "dev.txt")]
    lines = [line for file in files for line in file.read_text().splitlines()]
    direct = {canonical(line) for line in lines if "==" in line}
    frozen = subprocess.run([pip, "freeze"], check=True, capture_output=True, text=True).stdout
    print("# The versions that train.txt and dev.txt pull in (3.11). Written by `make relock`.")
    for line in frozen.splitlines():
        if canonical(line) not in direct:
            print(line)


main(sys.argv[1])
