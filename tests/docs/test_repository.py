"""What hosts and installers read of the clone agrees with the clone: workflows, forms, metadata."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tomllib

import pytest
from clone import ROOT

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_workflows_call_targets_that_exist():
    targets = set()
    for line in (ROOT / "Makefile").read_text().splitlines():
        rule = re.match(r"([\w -]+):(?!=)", line)
        targets |= set(rule[1].split()) if rule else set()
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        for job in yaml.safe_load(path.read_text())["jobs"].values():
            matrix = job.get("strategy", {}).get("matrix", {}).get("target", [])
            called = [
                step["run"].split()[1] for step in job["steps"] if "make " in step.get("run", "")
            ]
            named = {name.split()[0] for name in matrix}
            assert called and named <= targets, named - targets
            assert {name for name in called if name.isalpha()} <= targets


def test_forms_for_issues_are_complete():
    forms = [p for p in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml") if p.stem != "config"]
    assert len(forms) == 2
    for form in (yaml.safe_load(path.read_text()) for path in forms):
        assert {"name", "description", "body"} <= set(form)
        assert all(field["attributes"]["label"] for field in form["body"])


def test_citation_is_of_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == PROJECT["version"]
    assert citation["license"] == PROJECT["license"]


def test_extra_of_examples_has_what_they_import():
    names = {"sklearn": "scikit-learn", "PIL": "pillow"}
    given = {
        "torch",
        "torch_xla",
        "numpy",
        "timm",
        *(path.stem for path in (ROOT / "examples").glob("*.py")),
        *PROJECT["optional-dependencies"]["examples"],
    }
    imports = re.compile(r"^\s*(?:from|import) (\w+)", re.MULTILINE)
    found = set()
    for path in (ROOT / "examples").glob("*.py"):
        found |= {names.get(name, name) for name in imports.findall(path.read_text())}
    assert found - given - sys.stdlib_module_names == set()


def test_source_distribution_has_the_sources_and_nothing_else(tmp_path):
    pytest.importorskip("scikit_build_core", reason="it makes the distribution")
    listed = subprocess.run(
        ["git", "ls-files", "src", "cmake", "python"], cwd=ROOT, capture_output=True, text=True
    )
    if listed.returncode != 0:
        pytest.skip("not a clone of git's")
    code = (
        "import sys; sys.path.append('cmake'); import build_backend; "
        "build_backend.build_sdist(sys.argv[1])"
    )
    subprocess.run([sys.executable, "-c", code, tmp_path], cwd=ROOT, check=True, timeout=300)
    (path,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert set(listed.stdout.split()) <= names
    assert {name.partition("/")[0] for name in names} & {".venv", "build", ".git"} == set()
    assert {"LICENSE", "README.md", "pyproject.toml", "CMakeLists.txt", "PKG-INFO"} <= names


def test_build_asks_for_torch_only_where_none_is_installed():
    pytest.importorskip("scikit_build_core", reason="it makes the packages")
    code = """if True:
        import sys; sys.path.append("cmake")
        import build_backend
        for made in (
            build_backend.get_requires_for_build_wheel,
            build_backend.get_requires_for_build_editable,
        ):
            assert not [each for each in made() if each.startswith("torch")], made()
            found, build_backend.directory_of = build_backend.directory_of, lambda package: None
            print([each for each in made() if each.startswith("torch")])
            build_backend.directory_of = found
        """
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert run.returncode == 0, run.stderr
    (needed,) = (each for each in PROJECT["dependencies"] if each.startswith("torch"))
    assert run.stdout.splitlines() == [f"['{needed}']"] * 2


def test_what_is_installed_is_found_where_pip_hides_it():
    """pip's environment for a build has a path of its own, and the interpreter of the installed."""
    code = (
        "import sys; sys.path = [p for p in sys.path if 'site-packages' not in p] + ['cmake']\n"
        "import locate_packages as l\n"
        "assert not l.directory_of('torch.no_such_module') and not l.directory_of('no_such')\n"
        "print(l.directory_of('torch'))"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    import torch

    assert run.stdout.strip() == torch.__path__[0], run.stderr
