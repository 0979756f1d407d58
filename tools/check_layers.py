"""Checks the rules that hold the folders of src/ apart. Exits with 1 and a line per violation.

- A folder includes only the folders below it.
- A foreign API is named in its one folder only: torch, Python, PJRT structs, StableHLO syntax,
  environment variables.
- No source file is longer than MAX_LINES.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MAX_LINES = 800

# folder -> the folders that its files may include
LAYERS = {
    "base": set(),
    "pjrt": {"base"},
    "hlo": {"base"},
    "graph": {"base"},
    "ops": {"base", "hlo", "graph"},
    "runtime": {"base", "hlo", "graph", "ops", "pjrt"},
    "aten": {"base", "graph", "ops", "runtime"},
    "python": {"base", "graph", "aten", "runtime"},
}

# what -> (pattern of a line of code, folders that may contain it)
OWNED = {
    "a torch header": (re.compile(r'#include [<"](torch|ATen|c10)/'), {"aten", "python"}),
    "a Python header": (re.compile(r'#include [<"](Python\.h|pybind11/)'), {"python"}),
    "the PJRT or FFI C API": (re.compile(r"\bPJRT_[A-Z][a-z]|\bXLA_FFI_|pjrt_c_api\.h"), {"pjrt"}),
    "StableHLO syntax": (re.compile(r'"[^"]*\b(stablehlo|chlo)\.'), {"hlo"}),
    "an environment variable": (re.compile(r"\b(secure_)?getenv\b"), {"base"}),
}

INCLUDE = re.compile(r'#include "(\w+)/')
COMMENT = re.compile(r"//.*")
SOURCE_SUFFIXES = {".cpp", ".h", ".py", ".pyi", ".cmake"}
CHECKED_FOLDERS = ["src", "python", "tests", "tools", "examples", "benchmarks", "cmake"]


def layer_violations(path: Path) -> Iterator[str]:
    folder = path.relative_to(ROOT / "src").parts[0]
    if folder not in LAYERS:
        yield f"{path.relative_to(ROOT)}: src/{folder} is not in the table of layers"
        return
    allowed = LAYERS[folder] | {folder}
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        place = f"{path.relative_to(ROOT)}:{number}"
        included = INCLUDE.match(line)
        if included and included[1] in LAYERS and included[1] not in allowed:
            yield f"{place}: {folder} must not include {included[1]}"
        code = COMMENT.sub("", line)
        for what, (pattern, owners) in OWNED.items():
            if folder not in owners and pattern.search(code):
                yield f"{place}: {what} belongs in {' or '.join(sorted(owners))} alone"


def length_violations() -> Iterator[str]:
    for folder in CHECKED_FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix not in SOURCE_SUFFIXES or not path.is_file():
                continue
            lines = len(path.read_text().splitlines())
            if lines > MAX_LINES:
                yield f"{path.relative_to(ROOT)}: {lines} lines, more than {MAX_LINES}"


def main() -> int:
    violations = list(length_violations())
    for path in sorted((ROOT / "src").rglob("*")):
        if path.suffix in {".cpp", ".h"}:
            violations += layer_violations(path)
    for violation in violations:
        print(violation)
    print(f"layers: {len(violations)} violations")
    return 1 if violations else 0


sys.exit(main())
