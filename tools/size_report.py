"""Prints lines per folder and the longest files, as `make size` and CI show them."""

from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ["src", "python", "tests", "tools", "examples", "benchmarks", "cmake", "docs"]
SUFFIXES = {".cpp", ".h", ".py", ".pyi", ".cmake", ".md"}
LONGEST_SHOWN = 10


def line_counts() -> dict[Path, int]:
    counts = {}
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in SUFFIXES and path.is_file():
                counts[path.relative_to(ROOT)] = len(path.read_text().splitlines())
    return counts


def folder_of(path: Path) -> str:
    return "/".join(path.parts[:2]) if path.parts[0] == "src" else path.parts[0]


def main() -> None:
    counts = line_counts()
    lines: Counter[str] = Counter()
    files: Counter[str] = Counter()
    for path, count in counts.items():
        lines[folder_of(path)] += count
        files[folder_of(path)] += 1
    print(f"{'folder':<16}{'files':>6}{'lines':>8}")
    for folder, count in sorted(lines.items()):
        print(f"{folder:<16}{files[folder]:>6}{count:>8}")
    print(f"{'all':<16}{sum(files.values()):>6}{sum(lines.values()):>8}\n\nlongest files")
    for path, count in sorted(counts.items(), key=lambda item: -item[1])[:LONGEST_SHOWN]:
        print(f"{count:>6} {path}")


main()
