"""The notebooks in examples/notebooks run from top to bottom, and do what they say."""

from __future__ import annotations

import re

import pytest
from clone import ROOT

nbformat = pytest.importorskip("nbformat", reason="it reads notebooks")
nbclient = pytest.importorskip("nbclient", reason="it runs notebooks")
pytest.importorskip("ipykernel", reason="notebooks run in it")

NOTEBOOKS = ROOT / "examples" / "notebooks"
# Of the client's own libraries.
pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Runs a notebook; what it prints, and the kinds of what else it shows."""
    for variable in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR"):
        monkeypatch.setenv(variable, str(tmp_path / variable))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")

    def call(name):
        notebook = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
        nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
        outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
        printed = "".join(o.text for o in outputs if o.get("name") == "stdout")
        return printed, [kind for o in outputs for kind in o.get("data", {})]

    return call


def test_notebooks_have_no_outputs_in_the_clone():
    paths = sorted(NOTEBOOKS.glob("*.ipynb"))
    assert len(paths) == 2
    for path in paths:
        notebook = nbformat.read(path, as_version=4)
        nbformat.validate(notebook)
        code = [cell for cell in notebook.cells if cell.cell_type == "code"]
        assert [(cell.outputs, cell.execution_count) for cell in code] == [([], None)] * len(code)


def test_notebook_draws_digits(run):
    printed, kinds = run("gan")
    assert kinds.count("image/png") == 2
    assert len(re.findall(r"^step \d00: ", printed, re.MULTILINE)) == 3
    assert "programs in all, 0 of them in the last twenty steps" in printed


def test_notebook_teaches_gpt2(run):
    printed, _ = run("gpt2")
    losses = [float(loss) for loss in re.findall(r"loss ([\d.]+),", printed)]
    compiled = [int(count) for count in re.findall(r"(\d+) programs compiled", printed)]
    assert len(losses) == 4 and losses[-1] < 0.8 * losses[0]
    assert compiled[1:4] == [0, 0, 0] and compiled[-1] <= 3
