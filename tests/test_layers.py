"""The layer check finds what it is there to find."""

from __future__ import annotations

import collections
import pathlib
import re

import check_layers
import pytest

ROOT = pathlib.Path(__file__).parent.parent

CLEAN = {
    "src/base/shape.h": "",
    "src/graph/node.h": '#include "base/shape.h"\n',
    "python/torch_xla/__init__.py": "from torch_xla.core import xla_model\n",
    "python/torch_xla/_devices.py": "import torch\n",
    "python/torch_xla/_capture/__init__.py": "",
    "python/torch_xla/_capture/regions.py": "from torch_xla import _devices\n",
    "python/torch_xla/core/__init__.py": "",
    "python/torch_xla/core/xla_model.py": "from torch_xla._capture.regions import Captured\n",
}
VIOLATIONS = {
    "an include upward": (
        "src/base/shape.h", '#include "graph/node.h"\n', "base must not include graph"
    ),
    "a foreign header": ("src/graph/node.h", "#include <torch/torch.h>\n", "belongs in aten"),
    "an import upward": (
        "python/torch_xla/_capture/regions.py", "from torch_xla.core import xla_model\n",
        "_capture must not import core (core.xla_model)",
    ),
    "in a function": (
        "python/torch_xla/_devices.py", "def f():\n    from torch_xla._capture import regions\n",
        "_devices.py:2: leaves must not import _capture",
    ),
    "for types alone": (
        "python/torch_xla/_devices.py", "if TYPE_CHECKING:\n    import torch_xla.core.xla_model\n",
        "_devices.py:2: leaves must not import core",
    ),
    "by name": (
        "python/torch_xla/_devices.py", 'importlib.import_module("torch_xla.core")\n',
        "leaves must not import core",
    ),
    "of the whole package": (
        "python/torch_xla/core/xla_model.py", "import torch_xla\n", "core must not import __init__"
    ),
    "a circle": (
        "python/torch_xla/_devices.py", "from torch_xla import _devices\n",
        "a circle: _devices -> _devices",
    ),
    "a part without a row": ("python/torch_xla/_new/a.py", "", "_new is not in the table"),
    "a long file": ("tools/long.py", "\n" * 801, "801 lines, more than 800"),
}  # fmt: skip


def found(tree, tmp_path, capsys):
    for name, text in tree.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    is_wrong = check_layers.main(tmp_path)
    printed = capsys.readouterr().out
    assert is_wrong == (printed != "layers: 0 violations\n")
    return printed


def test_nothing_is_found_where_nothing_is(tmp_path, capsys):
    assert found(CLEAN, tmp_path, capsys) == "layers: 0 violations\n"


@pytest.mark.parametrize(("file", "text", "message"), VIOLATIONS.values(), ids=VIOLATIONS.keys())
def test_a_violation_is_found(file, text, message, tmp_path, capsys):
    assert message in found(CLEAN | {file: text}, tmp_path, capsys)


@pytest.mark.parametrize("table", [check_layers.LAYERS, check_layers.PYTHON_LAYERS])
def test_rows_of_the_tables_name_rows_above_them(table):
    above = set()
    for part, below in table.items():
        assert below <= above, part
        above.add(part)


def cells_of(text, header):
    """The rows of the table of a page whose header begins so: lists of words in backticks."""
    lines = text.split(f"\n| {header} |", 1)[1].splitlines()[2:]
    for line in lines:
        if not line.startswith("|"):
            return
        yield [cell.strip() for cell in line.strip("|").split("|")]


def test_other_lists_of_layers_are_the_tables():
    built = re.findall(
        r"torch_xla_add_layer\((\w+) ?([\w ]*)\)", (ROOT / "cmake/layers.cmake").read_text()
    )
    assert {name: set(below.split()) for name, below in built} == {
        name: below for name, below in check_layers.LAYERS.items() if name in dict(built)
    }
    assert {name for name, _ in built} == {
        "base",
        "pjrt",
        "hlo",
        "graph",
        "rows",
        "ops",
        "runtime",
    }
    page = (ROOT / "CONTRIBUTING.md").read_text()
    above: list[str] = []
    for name, *_, below in cells_of(page, "folder | holds"):
        named = set(above) if below == "all above" else set(re.findall(r"\w+", below))
        assert named == check_layers.LAYERS[name.strip("`")], name
        above.append(name.strip("`"))
    assert above == [*check_layers.LAYERS]
    for name, _, below in cells_of(page, "part | holds"):
        part = "leaves" if name == "`_*.py`" else name.strip("`")
        if not part.startswith("the rest"):
            named = set(re.findall(r"\w+", below))
            assert named == check_layers.INTERNALS[part] | {"leaves"}, name


def test_modules_of_tests_are_told_apart_by_their_names():
    """They import each other by them, whatever their folders."""
    names = collections.Counter(path.name for path in (ROOT / "tests").rglob("*.py"))
    assert [name for name, count in names.items() if count > 1 and name != "conftest.py"] == []
