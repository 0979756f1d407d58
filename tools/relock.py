"""Prints requirements/lock.txt: the versions that `pip freeze` shows beyond those in dev.txt."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def canonical(requirement: str) -> str:
    return re.sub(r"[-_.]+", "-", requirement.split("==")[0].strip().lower())


def main(pip: str) -> None:
    dev = (ROOT / "requirements" / "dev.txt").read_text().splitlines()
    direct = {canonical(line) for line in dev if "==" in line}
    frozen = subprocess.run([pip, "freeze"], check=True, capture_output=True, text=True).stdout
    print("# The versions of what dev.txt pulls in (Python 3.11). Written by `make relock`.")
    for line in frozen.splitlines():
        if canonical(line) not in direct:
            print(line)


main(sys.argv[1])
