"""Checks the rules that hold the parts of the sources apart. Exits with 1 and a line per violation.

- A folder of src/ includes only the folders below it.
- A foreign API is named in its one folder only: torch, Python, PJRT structs, StableHLO syntax,
  environment variables.
- A part of the Python package imports only the parts below it, wherever the import stands, and no
  modules import each other in a circle.
- No source file is longer than MAX_LINES.

Without arguments it checks the tree that it lies in, else the one at the given path.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

MAX_LINES = 800

# folder -> the folders that its files may include
LAYERS = {
    "base": set(),
    "pjrt": {"base"},
    "hlo": {"base"},
    "graph": {"base"},
    "ops": {"base", "hlo", "graph"},
    "runtime": {"base", "hlo", "graph", "ops", "pjrt"},
    "rows": {"base"},
    "dfti": {"base"},
    "aten": {"base", "graph", "rows", "dfti", "ops", "runtime"},
    "python": {"base", "graph", "aten", "runtime"},
}

# what -> (pattern of a line of code, folders that may contain it)
OWNED = {
    "a torch header": (re.compile(r'#include [<"](torch|ATen|c10)/'), {"aten", "python"}),
    "a Python header": (re.compile(r'#include [<"](Python\.h|pybind11/)'), {"python"}),
    "the PJRT or FFI C API": (re.compile(r"\bPJRT_[A-Z][a-z]|\bXLA_FFI_|pjrt_c_api\.h"), {"pjrt"}),
    "StableHLO syntax": (re.compile(r'"[^"]*\b(stablehlo|chlo)\.'), {"hlo"}),
    "MKL": (re.compile(r"\bDfti[A-Z]|\bDFTI_[A-Z]"), {"dfti"}),
    "an environment variable": (re.compile(r"\b(secure_)?getenv\b"), {"base"}),
}

# Part of the Python package -> the parts that it may import, all of which stand above it. A part is
# a folder or a module at the top of the package; the modules there whose names begin with "_" are
# one part, the leaves. Internals come first: programs import facades, which import internals.
INTERNALS = {
    "leaves": set[str](),
    "_capture": {"leaves"},
    "_spmd": {"leaves"},
    "_replicas": {"leaves", "_spmd"},
    "_torch": {"leaves", "_capture", "_replicas", "_spmd"},
}
FACADES = {
    "torch_xla": set[str](),
    "backends": set[str](),
    "runtime": {"torch_xla"},
    "core": {"torch_xla", "runtime"},
    "utils": set[str](),
    "debug": set[str](),
    "amp": set[str](),
    "distributed": {"runtime"},
    "experimental": {"runtime", "core", "distributed"},
    "stablehlo": {"debug"},
    "doctor": {"torch_xla", "runtime"},
    "conformance": {"torch_xla", "debug"},
    "_dynamo": set[str](),
    "_internal": set[str](),
    # The names that it gives them are in a table, not in imports.
    "_moved_names": {"_internal", "core", "amp", "distributed", "experimental", "runtime"},
}
PYTHON_LAYERS = {
    **INTERNALS,
    **{facade: {*INTERNALS, *below} for facade, below in FACADES.items()},
    "__init__": {*INTERNALS, *FACADES},
}

INCLUDE = re.compile(r'#include "(\w+)/')
COMMENT = re.compile(r"//.*")
SOURCE_SUFFIXES = {".cpp", ".h", ".py", ".pyi", ".cmake"}
CHECKED_FOLDERS = ["src", "python", "tests", "tools", "examples", "benchmarks", "cmake"]


def layer_violations(root: Path) -> Iterator[str]:
    for path in sorted((root / "src").rglob("*")):
        if path.suffix in {".cpp", ".h"}:
            yield from _layer_violations(path, root)


def _layer_violations(path: Path, root: Path) -> Iterator[str]:
    folder = path.relative_to(root / "src").parts[0]
    if folder not in LAYERS:
        yield f"{path.relative_to(root)}: src/{folder} is not in the table of layers"
        return
    allowed = LAYERS[folder] | {folder}
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        place = f"{path.relative_to(root)}:{number}"
        included = INCLUDE.match(line)
        if included and included[1] in LAYERS and included[1] not in allowed:
            yield f"{place}: {folder} must not include {included[1]}"
        code = COMMENT.sub("", line)
        for what, (pattern, owners) in OWNED.items():
            if folder not in owners and pattern.search(code):
                yield f"{place}: {what} belongs in {' or '.join(sorted(owners))} alone"


class PythonPackage:
    """What the modules of a package import of it. They are named as in `a.b`, without the package's
    own name, which stands for its `__init__.py`."""

    def __init__(self, folder: Path) -> None:
        self.name = folder.name
        self.paths = {
            self._name_of(path, folder): path
            for path in sorted(folder.rglob("*"))
            if path.suffix in {".py", ".pyi"}
        }
        self.imports = {
            module: sorted(set(self._imports_of(path)))
            for module, path in self.paths.items()
            if path.suffix == ".py"
        }

    @staticmethod
    def _name_of(path: Path, folder: Path) -> str:
        parts = path.relative_to(folder).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)

    def _module_of(self, name: str) -> str | None:
        """The module that `name`, of a module or of something in one, is found in."""
        package, _, name = name.partition(".")
        if package != self.name:
            return None
        while name and name not in self.paths:
            name = name.rpartition(".")[0]
        return name or "__init__"

    def _imports_of(self, path: Path) -> Iterator[tuple[int, str]]:
        for node in ast.walk(ast.parse(path.read_text())):
            for name in _imported_names(node):
                module = self._module_of(name)
                if module is not None:
                    yield node.lineno, module  # type: ignore[attr-defined]

    def circle(self) -> list[str]:
        """Modules each of which imports the next, from one back to itself; empty if none do."""
        done: set[str] = set()
        path: list[str] = []

        def visit(module: str) -> list[str]:
            if module in path:
                return [*path[path.index(module) :], module]
            if module not in done:
                path.append(module)
                for _, imported in self.imports.get(module, ()):
                    if found := visit(imported):
                        return found
                done.add(path.pop())
            return []

        return next((found for module in self.imports if (found := visit(module))), [])


def _imported_names(node: ast.AST) -> list[str]:
    match node:
        case ast.Import(names):
            return [alias.name for alias in names]
        case ast.ImportFrom(module, names):
            return [f"{module}.{alias.name}" for alias in names]
        case ast.Call(func=ast.Attribute(attr="import_module"), args=[ast.Constant(value), *_]):
            return [str(value)]
    return []


def part_of(module: str) -> str:
    top, _, inside = module.partition(".")
    is_leaf = top.startswith("_") and not inside and top not in PYTHON_LAYERS
    return "leaves" if is_leaf else top


def import_violations(root: Path) -> Iterator[str]:
    package = PythonPackage(root / "python" / "torch_xla")
    for module, imports in package.imports.items():
        place = package.paths[module].relative_to(root)
        part = part_of(module)
        if part not in PYTHON_LAYERS:
            yield f"{place}: {part} is not in the table of layers"
            continue
        for line, imported in imports:
            if part_of(imported) not in PYTHON_LAYERS[part] | {part}:
                yield f"{place}:{line}: {part} must not import {part_of(imported)} ({imported})"
    if circle := package.circle():
        yield f"{package.paths[circle[0]].relative_to(root)}: a circle: {' -> '.join(circle)}"


def length_violations(root: Path) -> Iterator[str]:
    for folder in CHECKED_FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in SOURCE_SUFFIXES or not path.is_file():
                continue
            lines = len(path.read_text().splitlines())
            if lines > MAX_LINES:
                yield f"{path.relative_to(root)}: {lines} lines, more than {MAX_LINES}"


def main(root: Path) -> int:
    violations = [*length_violations(root), *layer_violations(root), *import_violations(root)]
    for violation in violations:
        print(violation)
    print(f"layers: {len(violations)} violations")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if sys.argv[1:] else __file__ + "/../..").resolve()))
