"""Which lines of a program launched graphs, and how often: out of what `XLA_SAVE_TENSORS_FILE`
wrote.

    python -m torch_xla.debug.frame_parser_util graphs.txt.0
"""

from __future__ import annotations

import dataclasses
import os
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator

_FRAME = re.compile(r"\s+(?P<function>.+) \((?P<file>.+):(?P<line>\d+)\)$")


@dataclasses.dataclass(frozen=True)
class Frame:
    """A line of the program, and the function that it is in."""

    function: str
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.function} ({self.file}:{self.line})"


def parse_frame_content(line: str) -> Frame | None:
    """The frame in a line of the file, or None if there is none."""
    found = _FRAME.match(line)
    return Frame(found["function"], found["file"], int(found["line"])) if found else None


def parse_frames(lines: Iterable[str]) -> Iterator[tuple[Frame, ...]]:
    """Of each graph in the file the frames that launched it, the innermost first."""
    frames: list[Frame] | None = None  # of the graph whose frames are being read
    for line in lines:
        if line.startswith("TensorsGraphInfo:"):
            frames = []
            continue
        frame = None if frames is None else parse_frame_content(line.rstrip("\n"))
        if frame is not None and frames is not None:
            frames.append(frame)
        elif frames is not None:
            yield tuple(frames)
            frames = None


def create_report(frames: Iterable[tuple[Frame, ...]]) -> str:
    """How often each stack of frames launched a graph, the most frequent first."""
    text = ""
    for stack, count in Counter(frames).most_common():
        text += f"{count} graphs:\n" + "".join(f"  {frame}\n" for frame in stack)
    return text


def process_frames(fname: str | os.PathLike[str]) -> str:
    """Print the report of a file that `XLA_SAVE_TENSORS_FILE` named, and return it."""
    with open(fname) as file:
        report = create_report(parse_frames(file))
    sys.stdout.write(report)
    return report


if __name__ == "__main__":
    process_frames(sys.argv[1])
