"""What `import torch_xla` does to a process: as little as possible before the device is used."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap

import pytest
from clone import ROOT
from processes import run_in_process


def test_import_backward_and_fork_make_no_client():
    assert (
        run_in_process(
            """
            import os, torch, torch_xla
            import torch_xla.core.xla_model, torch_xla.runtime, torch_xla.debug.metrics

            def check():
                assert not torch_xla._XLAC._xla_runtime_is_initialized()
                assert "pjrt" not in open("/proc/self/maps").read()

            torch.manual_seed(1)
            x = torch.ones(3, requires_grad=True)
            (x * x).sum().backward()
            assert torch.xla.is_available()
            assert not torch.xla.is_initialized()
            check()
            child = os.fork()
            if child == 0:
                check()
                assert torch.ones(2, device="xla").tolist() == [1, 1]
                os._exit(0)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            check()
            # The backward before the first use did no harm.
            y = torch.ones(3, device="xla", requires_grad=True)
            (y * y).sum().backward()
            print(y.grad.tolist())
            """
        )
        == "[2.0, 2.0, 2.0]"
    )


def test_every_submodule_is_an_attribute_of_its_package():
    text = run_in_process(
        """
        import importlib.metadata, importlib.util, pkgutil
        import torch_xla

        torch_xla.experimental.eager_mode(False)
        torch_xla.distributed.parallel_loader.MpDeviceLoader
        named = [info.name for info in pkgutil.walk_packages(torch_xla.__path__, "torch_xla.")]
        names = [name for name in named if "libtorch_xla" not in name]
        assert len(names) > 80, names
        for name in names:
            value = torch_xla
            for part in name.split(".")[1:]:
                value = getattr(value, part)
        for package in (torch_xla, torch_xla.core):
            try:
                package.nonsense
            except AttributeError as error:
                assert "no attribute 'nonsense'" in str(error), error
            else:
                raise AssertionError(package)
        print("done")
        """
    )
    assert text == "done"


def test_import_from_the_root_of_the_clone():
    """Python puts the working directory first: no folder there may be called torch_xla."""
    code = (
        "import torch, torch_xla; print(torch.ones(2, device='xla').tolist(), torch_xla.__file__)"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("[1.0, 1.0]")


def test_child_of_a_process_that_used_the_device_is_told_so():
    assert "before this process was forked" in run_in_process(
        """
        import os, torch, torch_xla
        torch.ones(2, device="xla").cpu()
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                torch.ones(2, device="xla").cpu()
            except RuntimeError as error:
                os.write(write, str(error).encode())
            assert torch.xla._is_in_bad_fork()
            os._exit(0)
        os.waitpid(child, 0)
        print(os.read(read, 10000).decode())
        """
    )


def test_worker_processes_of_a_loader_are_fine():
    assert (
        run_in_process(
            """
            import torch, torch_xla
            from torch.utils.data import DataLoader, TensorDataset
            total = torch.zeros((), device="xla")
            loader = DataLoader(TensorDataset(torch.arange(20.0)), batch_size=5, num_workers=2)
            for _ in range(2):
                for (batch,) in loader:
                    total += batch.to("xla").sum()
                    torch_xla.sync()
            print(total.item())
            """
        )
        == "380.0"
    )


# All modules that a plain import brings in: the fewer, the sooner programs start. What few of them
# need is imported by what needs it, and what changes a module of torch by `_torch.late_changes`.
MODULES = """
    _XLAC _background _barriers _built_for _causes _compatibility _devices _known_bindings _lowering
    _memory _moved_names _other_names _presence _replicas _replicas.world _settings _step_closures
    _submodules _torch
    _torch.annotated_meshes _torch.checkpointing _torch.device_module _torch.integration
    _torch.late_changes _torch.module_moves _torch.serialization _torch.storages _torch.streams
    _torch_differences _wrapping torch_xla
    """


def test_import_brings_in_no_more_modules_than_it_needs():
    text = run_in_process(
        """
        import sys, torch
        before = set(sys.modules)
        import torch_xla
        print(*sorted(set(sys.modules) - before))
        """
    )
    ours = {f"torch_xla.{module}" for module in MODULES.split()}
    assert set(text.split()) == {"torch.xla", "torch_xla", *ours}


def test_names_of_the_package_are_imported_when_asked_for():
    text = run_in_process(
        """
        import sys, torch_xla
        assert {*torch_xla.__all__, "__version__"} <= set(dir(torch_xla))
        later = {name for name in torch_xla.__all__ if name not in vars(torch_xla)}
        for name in later:
            value = getattr(torch_xla, name)
            assert vars(torch_xla)[name] is value
        assert torch_xla.launch is sys.modules["torch_xla._replicas.launch"].launch
        print(*sorted(later))
        """
    )
    assert text == "backends compile launch runtime set_custom_compile_options"


def test_import_takes_little_memory():
    megabytes = run_in_process(
        """
        import torch
        def resident():
            return int(open("/proc/self/statm").read().split()[1]) * 4096 / 1e6
        before = resident()
        import torch_xla
        print(resident() - before)
        """
    )
    assert float(megabytes) < 60


def test_exit_is_clean_with_tensors_and_work_left():
    assert (
        run_in_process(
            """
            import torch, torch_xla
            kept = [torch.ones(100, 100, device="xla") @ torch.ones(100, 100, device="xla")]
            torch_xla.sync()
            kept.append(kept[0] + 1)
            print("done")
            """
        )
        == "done"
    )


def test_another_torch_is_refused():
    output = run_in_process(
        """
        import torch
        torch.__version__ = "2.99.1+cpu"
        try:
            import torch_xla
        except ImportError as error:
            print(error)
        """
    )
    assert "2.99.1" in output and "torch_xla is for torch 2." in output


def test_another_distribution_of_the_name_is_an_error(tmp_path):
    (tmp_path / "torch_xla-2.9.0.dist-info").mkdir()
    (tmp_path / "torch_xla_extras-1.0.dist-info").mkdir()
    program = """
        import sys
        sys.path.append(sys.argv[1])
        try:
            import torch_xla
        except ImportError as error:
            print(error)
        """
    output = run_in_process(program, str(tmp_path))
    assert output.startswith("torch_xla 2.9.0, another distribution of that name, is in ")
    assert str(tmp_path) in output
    assert "pip uninstall torch_xla" in output
    (tmp_path / "torch_xla-2.9.0.dist-info").rmdir()
    assert run_in_process(program, str(tmp_path)) == ""


@pytest.mark.parametrize(
    ("library", "text"),
    [
        (None, "is a folder of sources, without the libraries"),
        ("_XLAC.cpython-399-x86_64-linux-gnu.so", "is built for another Python than this one"),
    ],
)
def test_a_package_without_libraries_says_so(tmp_path, library, text):
    package = shutil.copytree(ROOT / "python" / "torch_xla", tmp_path / "torch_xla")
    shutil.rmtree(package / "lib", ignore_errors=True)
    if library is not None:
        folder = package / "lib" / "torch-2.99"
        folder.mkdir(parents=True)
        (folder / library).touch()
        (package / "_built_for.py").touch()
    program = """
        import sys
        sys.path.insert(0, sys.argv[1])
        try:
            import torch_xla
        except ImportError as error:
            print(error, error.__context__)
        """
    output = run_in_process(program, str(tmp_path))
    assert output.startswith(f"torch_xla in {package} {text}")
    assert output.endswith(" None")


@pytest.mark.parametrize(
    ("lacking", "text"),
    [
        (
            "sys.version_info, sys.version = (3, 10, 4), '3.10.4 (main)'",
            "torch_xla needs Python 3.11 or newer, this is 3.10.4\n",
        ),
        (
            "sys.modules['scikit_build_core'] = None",
            "torch_xla is built by scikit-build-core (",
        ),
        (
            "os.environ['CMAKE_EXECUTABLE'] = sys.argv[2]",
            "torch_xla: Could not find CMake with version >=3.24: run `pip install cmake",
        ),
    ],
)
def test_what_the_build_lacks_is_one_sentence(lacking, text, tmp_path):
    """pip shows what the backend says, and its traceback if there is one."""
    pytest.importorskip("scikit_build_core")
    old = tmp_path / "cmake"
    old.write_text("""#!/bin/sh\necho '{"version": {"string": "3.18.4"}}'\n""")
    old.chmod(0o755)
    program = f"""
        import os, sys
        {lacking}
        sys.path.insert(0, sys.argv[1])
        import build_backend
        build_backend.prepare_metadata_for_build_wheel(sys.argv[3])
        """
    command = [sys.executable, "-c", textwrap.dedent(program), str(ROOT / "cmake"), str(old)]
    done = subprocess.run(
        [*command, str(tmp_path)], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.returncode == 1
    assert done.stderr.startswith(text) and len(done.stderr.splitlines()) == 1, done.stderr


def test_first_use_says_nothing():
    program = "import torch, torch_xla; torch.ones(2, device='xla').tolist()"
    environment = {k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=True
    )
    assert (done.stdout, done.stderr) == ("", "")


@pytest.mark.parametrize(
    ("environment", "text"),
    [
        ({"PJRT_DEVICE": "ABACUS"}, "no PJRT plugin for PJRT_DEVICE=ABACUS is installed"),
        ({"PJRT_DEVICE": "CUDA"}, "For CUDA: install jax-cuda13-pjrt"),
        ({"PJRT_DEVICE": "TPU"}, "For TPU: install libtpu"),
        ({"PJRT_LIBRARY_PATH": "/nowhere/plugin.so"}, "there is no such file"),
        ({"PJRT_LIBRARY_PATH": sys.executable}, "could not be started"),
    ],
)
def test_missing_plugin_is_an_error_that_can_be_retried(environment, text):
    output = run_in_process(
        """
        import torch, torch_xla
        for use in (torch_xla.device, lambda: torch.ones(2, device="xla")):
            try:
                use()
            except RuntimeError as error:
                print(error)
            assert not torch.xla.is_initialized()
        torch.ones(3, requires_grad=True).sum().backward()
        torch_xla.settings.pjrt_library_path = ""
        torch_xla.runtime.set_device_type("CPU")
        assert torch.ones(2, device="xla").tolist() == [1, 1]
        """,
        **environment,
    )
    assert output.count(text) == 2


def test_device_type_is_known_before_the_client():
    assert (
        run_in_process(
            """
            import torch_xla, torch_xla.runtime as xr
            print(xr.device_type())
            assert not torch_xla._XLAC._xla_runtime_is_initialized()
            torch_xla.device()
            xr.set_device_type("CPU")
            try:
                xr.set_device_type("CUDA")
            except RuntimeError as error:
                assert "in use already" in str(error)
            """,
            PJRT_DEVICE="cpu",
        )
        == "CPU"
    )


@pytest.mark.skipif(
    shutil.which("unshare") is None
    or subprocess.run(["unshare", "--net", "true"], capture_output=True).returncode != 0,
    reason="this user may not take the network away",
)
def test_a_machine_without_a_network_computes():
    program = "import torch, torch_xla; print(torch.ones(2, device='xla').tolist())"
    done = subprocess.run(
        ["unshare", "--net", sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout == "[1.0, 1.0]\n", done.stderr
