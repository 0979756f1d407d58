"""The cache of compiled programs on disk: shared by processes, and never a reason to fail."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import textwrap

import pytest
from processes import run_in_process

# Trains two steps and prints what was compiled by XLA, what came from the disk, and the loss.
TRAIN = """
    import torch, torch_xla
    from torch_xla.debug import metrics
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(144, 5)
    ).to("xla")
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(2):
        x = torch.randn(8, 1, 8, 8, device="xla")
        loss = model(x).logsumexp(1).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        torch_xla.sync()
    def count(name):
        return metrics.counter_value(name) or 0
    print(count("UncachedCompile"), count("PersistentCacheHit"), count("PersistentCacheMiss"),
          loss.item())
"""

# One small program.
ONE = """
    import torch, torch_xla
    from torch_xla.debug import metrics
    assert (torch.arange(4.0, device="xla") * 2 + 1).tolist() == [1, 3, 5, 7]
    print(metrics.counter_value("UncachedCompile") or 0)
"""


def entries(directory: pathlib.Path) -> list[pathlib.Path]:
    return sorted(directory.glob("*.xlaprogram"))


def train(directory: pathlib.Path, **environment: str) -> tuple[int, int, int, str]:
    out = run_in_process(TRAIN, XLA_PERSISTENT_CACHE_PATH=str(directory), **environment).split()
    return int(out[0]), int(out[1]), int(out[2]), out[3]


def test_second_process_trains_without_a_compile(tmp_path):
    compiled, hits, misses, loss = train(tmp_path)
    assert compiled == misses > 0
    assert hits == 0
    assert train(tmp_path) == (0, compiled, 0, loss)


# Waits for the background, then runs one small program; further code makes it another script.
PRELOAD = """
    import threading, time, torch, torch_xla
    import torch_xla.runtime as xr
    device = torch_xla.device()
    time.sleep(1)
    assert (torch.arange(4.0, device=device) * 2 + 1).tolist() == [1, 3, 5, 7]
    stats = xr.persistent_cache_stats()
    print(stats["hits"], stats["preloaded"], stats["entries"])
"""


def test_programs_of_the_last_run_are_loaded_ahead(tmp_path):
    def run(code: str, **environment: str) -> str:
        return run_in_process(code, XLA_PERSISTENT_CACHE_PATH=str(tmp_path), **environment)

    assert run(PRELOAD) == "0 0 1"
    assert run(PRELOAD) == "1 1 1"
    assert run(PRELOAD, XLA_PERSISTENT_CACHE_READ_ONLY="1") == "1 1 1"
    assert run(PRELOAD, XLA_PERSISTENT_CACHE_PRELOAD="0") == "1 0 1"
    assert run(PRELOAD + "    pass\n") == "1 0 1"  # another script
    (first, *_) = tmp_path.glob("*.xlauses")
    first.write_bytes(first.read_bytes()[:-3])
    assert run(PRELOAD).startswith("1 ")


def test_a_run_that_ends_at_once_ends_its_preloading(tmp_path):
    code = TRAIN.replace(
        "torch.manual_seed(0)", "torch_xla.device(); import os; os.environ.get('END') and exit()"
    )
    environment = {"XLA_PERSISTENT_CACHE_PATH": str(tmp_path)}
    assert run_in_process(code, **environment)
    assert run_in_process(code, END="1", **environment) == ""


def test_flags_and_settings_are_part_of_the_key(tmp_path):
    compiled, *_ = train(tmp_path)
    assert train(tmp_path, XLA_FLAGS="--xla_cpu_enable_fast_math=true")[1] == 0
    assert train(tmp_path, XLA_ENABLE_PARAM_ALIASING="0")[0] > 0
    assert train(tmp_path)[0] == 0
    assert len(entries(tmp_path)) >= 2 * compiled


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[:20],
        lambda content: content[:-1],
        lambda content: content + b"x",
        lambda content: content[:200] + bytes([content[200] ^ 1]) + content[201:],
        lambda content: os.urandom(len(content)),
    ],
)
def test_damaged_entry_is_a_miss_with_a_warning(tmp_path, damage):
    train(tmp_path)
    for entry in entries(tmp_path):
        entry.write_bytes(damage(entry.read_bytes()))
    code = "import sys, io\n" + textwrap.dedent(TRAIN)
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "XLA_PERSISTENT_CACHE_PATH": str(tmp_path)},
        check=True,
    )
    assert "damaged or not an entry" in done.stderr
    assert int(done.stdout.split()[1]) == 0
    assert train(tmp_path)[0] == 0  # they were replaced


def test_entry_of_another_program_is_a_miss(tmp_path):
    run_in_process(ONE, XLA_PERSISTENT_CACHE_PATH=str(tmp_path))
    (entry,) = entries(tmp_path)
    train(tmp_path)
    others = [other for other in entries(tmp_path) if other != entry]
    entry.write_bytes(others[0].read_bytes())
    assert run_in_process(ONE, XLA_PERSISTENT_CACHE_PATH=str(tmp_path)) == "1"


def test_entry_that_is_no_file_is_a_miss(tmp_path):
    run_in_process(ONE, XLA_PERSISTENT_CACHE_PATH=str(tmp_path))
    (entry,) = entries(tmp_path)
    entry.unlink()
    entry.mkdir()
    assert run_in_process(ONE, XLA_PERSISTENT_CACHE_PATH=str(tmp_path)) == "1"
    entry.rmdir()
    os.mkfifo(entry)
    assert run_in_process(ONE, XLA_PERSISTENT_CACHE_PATH=str(tmp_path)) == "1"


# Two programs, of which it prints how many XLA compiled.
TWO = """
    import torch, torch_xla
    from torch_xla.debug import metrics
    for size in (4, 5):
        assert (torch.arange(size, dtype=torch.float32, device="xla") * 2 + 1).tolist()[1] == 3
    print(metrics.counter_value("UncachedCompile") or 0)
"""


def run_two(directory: pathlib.Path | str, **environment: str) -> tuple[int, list[str]]:
    """How many were compiled, and what was said about the cache."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", textwrap.dedent(TWO)],
        capture_output=True,
        text=True,
        env={**os.environ, "XLA_PERSISTENT_CACHE_PATH": str(directory), **environment},
        check=True,
    )
    lines = done.stderr.splitlines()
    return int(done.stdout), [line for line in lines if "the cache of compiled programs" in line]


def test_files_of_any_length_end_no_process(tmp_path):
    assert run_two(tmp_path) == (2, [])
    for file in [*entries(tmp_path), *tmp_path.glob("*.xlauses")]:
        os.truncate(file, 8 << 40)
    compiled, said = run_two(tmp_path)
    assert compiled == 2
    # The list, and the program that is asked for first; what makes room for it removes the other.
    assert len(said) == 2 and all("damaged or not an entry" in line for line in said)
    assert run_two(tmp_path) == (0, [])


def link(entry: pathlib.Path) -> None:
    entry.rename(entry.with_suffix(".moved"))
    entry.symlink_to(entry.with_suffix(".moved"))


def give_away(path: pathlib.Path) -> None:
    os.chown(path, 12345, 12345)


is_root = os.geteuid() == 0  # who alone can make files of another user


def test_programs_that_others_may_have_planted_are_not_run(tmp_path):
    run_two(tmp_path)
    changes = {
        "others may write to it (mode 0666)": lambda entry: entry.chmod(0o666),
        "it is no file, but a link": link,
        "it belongs to user 12345": give_away if is_root else None,
    }
    for reason, change in changes.items():
        if change is None:
            continue
        for entry in entries(tmp_path):
            change(entry)
        compiled, said = run_two(tmp_path)
        assert compiled == 2  # and so they are replaced
        assert len(said) == 1 and reason in said[0]  # of both
        assert "chmod go-w" in said[0] and "XLA_PERSISTENT_CACHE_OWNERS" in said[0]
    assert run_two(tmp_path) == (0, [])


def test_directories_of_others_are_neither_read_nor_written(tmp_path):
    directory = tmp_path / "torch_xla" / "programs"
    by_default = {"XLA_PERSISTENT_CACHE": "1", "XDG_CACHE_HOME": str(tmp_path)}
    run_two(directory)
    before = sorted(directory.iterdir())
    directory.chmod(0o777)
    for chosen, environment in ((directory, {}), ("", by_default)):
        compiled, said = run_two(chosen, **environment)
        assert compiled == 2 and len(said) == 1
        assert f"{directory} is not used: others may write to it (mode 0777)" in said[0]
    assert sorted(directory.iterdir()) == before
    directory.chmod(0o755)
    assert run_two(directory) == (0, [])


@pytest.mark.skipif(not is_root, reason="only root makes files of another user")
def test_a_directory_of_another_user_is_used_if_that_user_is_trusted(tmp_path):
    run_two(tmp_path)
    for path in [*tmp_path.iterdir(), tmp_path]:
        give_away(path)
    read_only = {"XLA_PERSISTENT_CACHE_READ_ONLY": "1"}
    assert run_two(tmp_path, XLA_PERSISTENT_CACHE_OWNERS="7,12345", **read_only) == (0, [])
    compiled, said = run_two(tmp_path, XLA_PERSISTENT_CACHE_OWNERS="everybody", **read_only)
    assert compiled == 2 and len(said) == 1
    assert f"{tmp_path} is not used: it belongs to user 12345" in said[0]


def test_directory_that_cannot_be_written_is_a_warning(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    done = subprocess.run(
        [sys.executable, "-P", "-c", textwrap.dedent(ONE)],
        capture_output=True,
        text=True,
        env={**os.environ, "XLA_PERSISTENT_CACHE_PATH": str(blocked / "programs")},
        check=True,
    )
    assert done.stdout.strip() == "1"
    assert "the cache of compiled programs" in done.stderr


def test_full_disk_is_one_warning(tmp_path):
    # A limit on the size of files is what a full disk looks like to the writer.
    limited = "import resource, signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
    limited += "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n" + textwrap.dedent(TWO)
    done = subprocess.run(
        [sys.executable, "-P", "-B", "-c", limited],
        capture_output=True,
        text=True,
        env={**os.environ, "XLA_PERSISTENT_CACHE_PATH": str(tmp_path)},
        check=True,
    )
    assert done.stdout.strip() == "2"
    assert done.stderr.count("writing") == 1
    assert list(tmp_path.iterdir()) == []


def test_read_only_cache_is_read_and_not_written(tmp_path):
    initialize = f"""
    import torch_xla.runtime as xr
    xr.initialize_cache({str(tmp_path)!r}, readonly=True)
    """
    assert run_in_process(textwrap.dedent(initialize) + textwrap.dedent(ONE)) == "1"
    assert list(tmp_path.iterdir()) == []
    assert run_in_process(ONE, XLA_PERSISTENT_CACHE_PATH=str(tmp_path)) == "1"
    assert run_in_process(textwrap.dedent(initialize) + textwrap.dedent(ONE)) == "0"


def test_initialize_cache_after_a_computation_raises(tmp_path):
    out = run_in_process(
        f"""
        import torch, torch_xla
        import torch_xla.runtime as xr
        device = torch_xla.device()
        x = torch.ones(2, device=device) + 1  # recorded only
        xr.initialize_cache({str(tmp_path / "a" / "b")!r})
        x.tolist()
        print(xr.persistent_cache_stats()["entries"])
        try:
            xr.initialize_cache({str(tmp_path)!r})
        except RuntimeError as error:
            print(error)
        """
    ).splitlines()
    assert out[0] == "1"
    assert "before it" in out[1]


def test_statistics_and_clearing(tmp_path):
    out = run_in_process(
        f"""
        import torch, torch_xla
        import torch_xla.runtime as xr
        xr.initialize_cache({str(tmp_path)!r})
        print(xr.persistent_cache_stats()["entries"])
        for _ in range(2):
            x = torch.ones(3, device="xla").exp()
            torch_xla.sync(wait=True)
            xr.clear_computation_cache()
        stats = xr.persistent_cache_stats()
        print(stats["hits"], stats["misses"], stats["failures"], stats["entries"])
        assert stats["path"] == {str(tmp_path)!r} and stats["bytes"] > 1000
        xr.clear_persistent_cache()
        print(xr.persistent_cache_stats()["entries"])
        """
    ).splitlines()
    assert out == ["0", "1 1 0 1", "0"]


def test_default_directory_keeps_nothing_of_a_process_that_compiles_little(tmp_path):
    environment = {"XLA_PERSISTENT_CACHE": "1", "XDG_CACHE_HOME": str(tmp_path)}
    out = run_in_process(
        ONE + "\n    print(torch_xla.runtime.persistent_cache_stats()['path'])", **environment
    )
    assert out.splitlines() == ["1", str(tmp_path / "torch_xla" / "programs")]
    assert entries(tmp_path / "torch_xla" / "programs") == []


def test_least_recently_used_programs_go_first(tmp_path):
    program = """
    import torch, torch_xla
    for size in ({sizes}):
        torch.ones(size, 3000, device="xla").tolist()
    """

    def run(sizes: str) -> None:
        run_in_process(
            program.format(sizes=sizes),
            XLA_PERSISTENT_CACHE_PATH=str(tmp_path),
            XLA_PERSISTENT_CACHE_MAX_MB="1",
        )

    run("1, 2,")
    old = entries(tmp_path)
    for number, entry in enumerate(old):
        os.utime(entry, (1000 + number, 1000 + number))
    # A third program for which there is no place: 1 MB less what the two have.
    filler = tmp_path / ("0" * 32 + ".xlaprogram")
    filler.write_bytes(bytes(2**20 - sum(entry.stat().st_size for entry in old)))
    run("3,")
    assert old[0] not in entries(tmp_path)
    assert filler in entries(tmp_path)


def test_processes_share_a_directory(tmp_path):
    code = textwrap.dedent(TRAIN)
    environment = {**os.environ, "XLA_PERSISTENT_CACHE_PATH": str(tmp_path)}
    processes = [
        subprocess.Popen(
            [sys.executable, "-P", "-c", code], env=environment, stdout=subprocess.PIPE
        )
        for _ in range(3)
    ]
    losses = {process.communicate()[0].split()[-1] for process in processes}
    assert all(process.returncode == 0 for process in processes)
    assert len(losses) == 1
    assert not list(tmp_path.glob("*.tmp"))
    assert train(tmp_path)[0] == 0


def test_a_home_where_nothing_can_be_made_is_one_warning_that_says_what_to_do(tmp_path):
    home = tmp_path / "home"
    home.write_text("a file, in which root too makes no directory")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("XLA_", "XDG_"))}
    done = subprocess.run(
        [sys.executable, "-P", "-c", textwrap.dedent(ONE)],
        capture_output=True,
        text=True,
        env={**environment, "HOME": str(home)},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "1\n"
    (said,) = done.stderr.splitlines()
    assert "/.cache/torch_xla/programs failed (Not a directory)" in said
    assert "XLA_PERSISTENT_CACHE_PATH names another directory" in said
