"""One tree for several versions of torch: what we wrap is there and called, what differs is found
by asking torch, and a build says for which torch it is."""

from __future__ import annotations

import importlib
import pathlib
import re
import types

import pytest
import torch
import torch.utils.checkpoint
from clone import ROOT
from processes import run_in_process

import torch_xla.distributed.xla_backend  # noqa: F401
from torch_xla import _XLAC, _built_for, _presence, _torch_differences
from torch_xla._wrapping import to_wrap


def replaced_names():
    """Those of docs/what_import_changes.md: the first column of the tables of what is replaced."""
    page = (ROOT / "docs" / "what_import_changes.md").read_text()
    section = page.split("## Replaced in PyTorch")[1].split("\n## ")[0]
    for row in re.findall(r"^\| (.*?) \|", section, re.MULTILINE):
        if "`" not in row or row.startswith("the module"):
            continue
        row = re.sub(r"\(\[.*?\)\)", "", row)
        names, _, owners = row.partition(" in ")
        listed, modules = re.findall(r"`([\w.]+)`", names), re.findall(r"`([\w.]+)`", owners)
        if modules:
            yield from (f"{module}.{name}" for module in modules for name in listed)
        else:
            yield from (name for name in listed if name.startswith("torch."))


def resolve(name):
    module, rest = name, []
    while True:
        try:
            value = importlib.import_module(module)
            break
        except ModuleNotFoundError:
            module, _, last = module.rpartition(".")
            rest.insert(0, last)
    for part in rest:
        value = getattr(value, part)
    return value


def test_page_names_what_is_replaced():
    assert len(set(replaced_names())) >= 20


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # PyTorch's own
@pytest.mark.parametrize("name", [*replaced_names()])
def test_what_the_page_names_is_replaced(name):
    replacement = resolve(name)
    assert hasattr(replacement, "__wrapped__"), name
    assert replacement.__code__.co_filename.find("torch_xla") >= 0, name


def test_checkpoint_calls_what_we_wrap():
    name = _torch_differences.checkpoint_generator(torch.utils.checkpoint)
    assert to_wrap(torch.utils.checkpoint, name, torch.utils.checkpoint.checkpoint).__wrapped__


def test_what_is_not_there_is_an_error():
    with pytest.raises(ImportError, match=r"torch\.random has no function _seed.*new_torch"):
        to_wrap(torch.random, "_seed_them")


def test_what_is_not_called_is_an_error():
    with pytest.raises(ImportError, match=r"torch\.random\.manual_seed does not call fork_rng"):
        to_wrap(torch.random, "fork_rng", torch.random.manual_seed)


def test_generator_of_checkpoints_is_the_one_that_is_called():
    name = "_checkpoint_without_reentrant_generator"
    module = types.SimpleNamespace(**{name: 1})
    assert _torch_differences.checkpoint_generator(module) == name
    setattr(module, f"{name}_impl", 2)
    assert _torch_differences.checkpoint_generator(module) == f"{name}_impl"


def test_fake_devices_are_numbered_by_either_list():
    by_function = types.SimpleNamespace(_is_indexed_device_type=lambda kind: kind == "cuda")
    _torch_differences.number_fake_devices(by_function)
    kinds = ("cuda", "xla", "cpu")
    assert [*map(by_function._is_indexed_device_type, kinds)] == [True, True, False]

    class FakeTensor:
        def __new__(cls, fake_mode, elem, device, constant=None):
            made = super().__new__(cls)
            made.device = device, constant
            return made

    by_constructor = types.SimpleNamespace(FakeTensor=FakeTensor)
    _torch_differences.number_fake_devices(by_constructor)
    number = torch.xla.current_device() if torch.xla.is_initialized() else 0
    assert FakeTensor(None, None, "xla").device == (torch.device("xla", number), None)
    assert FakeTensor(None, None, device="xla:3", constant=1).device == (torch.device("xla:3"), 1)
    assert FakeTensor(None, None, "cpu").device == (torch.device("cpu"), None)


def test_fake_tensors_on_xla_are_on_a_numbered_device():
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode():
        assert torch.ones(2, device="xla").device == torch.device("xla", 0)
        assert torch.ones(2, device="cpu").device == torch.device("cpu")


def minors():
    oldest, untested = (int(each.split(".")[1]) for each in _built_for.SUPPORTED)
    return oldest, untested


def import_with(version):
    return run_in_process(
        f"""
        import torch
        torch.__version__ = "{version}"
        try:
            import torch_xla
        except ImportError as error:
            print(error)
        """
    )


def test_torch_of_another_version_is_refused_with_what_to_run():
    oldest, untested = minors()
    built = _presence.versions_of_torch()
    other = next(f"2.{i}.1" for i in range(oldest, untested) if f"2.{i}" not in built)
    text = import_with(other)
    assert f"is for torch {' and '.join(built)}, but torch {other} is installed" in text
    assert f"or install torch=={built[-1]}.*" in text
    assert "pip install --no-build-isolation --no-deps --force-reinstall ." in text
    assert "supports" not in text


def test_untested_torch_is_refused_with_how_to_build_for_it():
    oldest, untested = minors()
    text = import_with(f"2.{untested}.0a0+git1234")
    assert "pip install --no-build-isolation" in text
    assert f"supports torch 2.{oldest} to 2.{untested - 1}" in text


def test_old_torch_is_refused_with_the_oldest_that_does():
    oldest, _ = minors()
    text = import_with(f"2.{oldest - 1}.3")
    assert f"torch_xla needs torch 2.{oldest} or newer" in text
    assert "pip install" not in text


def test_libraries_are_those_for_the_torch_that_runs_them():
    minor = ".".join(torch.__version__.split(".")[:2])
    assert pathlib.Path(_XLAC.__file__).parent.name == f"torch-{minor}"
    maps = pathlib.Path("/proc/self/maps").read_text()
    mapped = {line.split()[-1] for line in maps.splitlines() if "libtorch_xla" in line}
    assert sorted(path.rpartition("torch_xla/lib/")[2] for path in mapped) == [
        "libtorch_xla_core.so",
        f"torch-{minor}/libtorch_xla.so",
    ]


def test_libraries_are_chosen_by_the_version_of_torch(tmp_path, monkeypatch):
    """The folders of two versions, and one of them on the package's path."""
    for version in ("2.9", "2.12"):
        (tmp_path / "lib" / f"torch-{version}").mkdir(parents=True)
    path = [str(tmp_path)]
    monkeypatch.setattr(_presence, "_search_path", lambda: path)
    assert _presence.versions_of_torch() == ["2.9", "2.12"]
    _presence.choose("2.12")
    assert path == [str(tmp_path), str(tmp_path / "lib" / "torch-2.12")]
