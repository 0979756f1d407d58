"""Tensors of two runs of a model are saved and compared."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from torch_xla.debug import model_comparator as mc


@pytest.fixture(autouse=True)
def nothing_is_configured():
    mc.configure(None)
    yield
    mc.configure(None)


def run(folder, device, scale=1.0):
    mc.configure(folder)
    x = torch.arange(6.0).reshape(2, 3).to(device)
    for step in (1, 2):
        for _ in range(2):
            x = mc.save("hidden", x * scale, step=step)
        mc.save("sum", x.sum(), step=step)


def test_runs_on_cpu_and_device_are_alike_until_they_part(device, tmp_path):
    run(tmp_path / "cpu", "cpu")
    run(tmp_path / "xla", device)
    assert mc.compare(tmp_path / "cpu", tmp_path / "xla") == ""
    assert {str(p.relative_to(tmp_path / "xla")) for p in (tmp_path / "xla").rglob("*.*")} == {
        f"step-{step}/{name}" for step in (1, 2) for name in ("hidden.0", "hidden.1", "sum.0")
    }
    run(tmp_path / "other", device, scale=1.01)
    report = mc.compare(tmp_path / "cpu", tmp_path / "other", max_diffs=2)
    assert report.startswith("step-1/hidden.0:\n  5 of 6 elements differ\n  [1, 2]: 5.0 and 5.0")
    assert report.count("[1, 2]") == report.count("[1, 1]") == 4 and "[1, 0]" not in report
    assert mc.compare(tmp_path / "cpu", tmp_path / "other", rtol=0.1) == ""


def test_what_one_folder_lacks_is_named_and_the_command_says_so(tmp_path):
    for name in ("a", "b"):
        mc.configure(tmp_path / name)
        mc.save("same", torch.ones(2))
        mc.save(name, torch.ones(2))
    command = [sys.executable, "-P", "-m", "torch_xla.debug.model_comparator"]
    folders = [str(tmp_path / "a"), str(tmp_path / "b")]
    done = subprocess.run([*command, *folders], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stdout == f"a.0 is in {folders[0]} alone\nb.0 is in {folders[1]} alone\n"
    same = subprocess.run([*command, folders[0], folders[0]], capture_output=True, text=True)
    assert (same.returncode, same.stdout) == (0, "")
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        mc.compare(tmp_path / "a", tmp_path / "c")


def test_saving_is_nothing_until_it_is_configured(device, tmp_path):
    t = torch.ones(2, device=device)
    assert mc.save("t", t) is t
    mc.configure(tmp_path)
    assert mc.save(None, t) is t
    (path,) = tmp_path.iterdir()
    assert path.name.startswith("test_model_comparator.py.l") and path.name.endswith(".0")
    with pytest.raises(ValueError, match="is no name of a file"):
        mc.save("../t", t)


def test_elements_are_compared_with_their_kind():
    nan, inf = float("nan"), float("inf")
    a = torch.tensor([1.0, nan, inf, -inf, 0.0])
    assert mc.compare_tensors(a, a.clone()) == ""
    for i, value in ((0, 1.1), (1, 0.0), (2, -inf), (3, 5.0), (4, nan)):
        b = a.clone()
        b[i] = value
        assert f"[{i}]: " in mc.compare_tensors(a, b) and "1 of 5" in mc.compare_tensors(b, a)
    assert "shapes differ: (5,) and (1,)" in mc.compare_tensors(a, a[:1])
    whole = torch.tensor([[2**40, 1]])
    assert "[0, 1]: 1.0 and 2.0" in mc.compare_tensors(whole, whole + torch.tensor([[0, 1]]))
    assert mc.compare_tensors(torch.tensor(1j), torch.tensor(1j)) == ""
    assert "[]: 1j and (1+1j)" in mc.compare_tensors(torch.tensor(1j), torch.tensor(1 + 1j))
