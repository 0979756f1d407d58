"""What the pages say is true: their Python runs and prints what they print, their C++ is in the
sources, and their links lead somewhere.

A page's ```python blocks run in order in one process. Where a ```text block follows, with at most
a line between, it is what the block prints. A ```cpp block that opens with the path of a source
quotes it, up to white space.
"""

from __future__ import annotations

import json
import pathlib
import re
import subprocess
import sys
from typing import Any

import page_blocks
import pytest
from clone import ROOT

PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/*.md")])
PYTHON = re.compile(
    r"^```python\n(?P<code>.*?)^```\n(?:(?:\n|[^`\n]+\n){0,3}^```text\n(?P<printed>.*?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)
QUOTE = re.compile(r"^```cpp\n// (?P<path>src/\S+)\n(?P<code>.*?)^```\n", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:)([^)#\s]+)(#[^)]*)?\)")


def named(page: pathlib.Path) -> str:
    return str(page.relative_to(ROOT))


def pages_with(pattern: re.Pattern[str]) -> list[pathlib.Path]:
    return [page for page in PAGES if pattern.search(page.read_text())]


def page_with_code(page: pathlib.Path) -> Any:
    marks = [pytest.mark.optimized] if "tiered_compilation" in page.read_text() else []
    return pytest.param(page, id=named(page), marks=marks)


@pytest.mark.parametrize("page", [*map(page_with_code, pages_with(PYTHON))])
def test_code_of_page_runs_and_prints_what_it_says(page):
    blocks = list(PYTHON.finditer(page.read_text()))
    done = subprocess.run(
        [sys.executable, page_blocks.__file__],
        input=json.dumps([block["code"] for block in blocks]),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for block, printed in zip(blocks, json.loads(done.stdout), strict=True):
        if block["printed"] is not None:
            assert printed.rstrip() == block["printed"].rstrip(), block["code"]


@pytest.mark.parametrize("page", pages_with(QUOTE), ids=named)
def test_quoted_sources_are_current(page):
    for quote in QUOTE.finditer(page.read_text()):
        source = (ROOT / quote["path"]).read_text()
        assert "".join(quote["code"].split()) in "".join(source.split()), quote["code"]


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_of_page_lead_somewhere(page):
    for target, _ in LINK.findall(page.read_text()):
        assert (page.parent / target).exists(), target
