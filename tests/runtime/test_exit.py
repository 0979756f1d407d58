"""The ways out of a program whose background threads are at work: it ends with its own status, and
says nothing that it did not say itself."""

from __future__ import annotations

import json
import pathlib
import textwrap

import pytest
from processes import run_in_process

# Batches without end, each of them made by PyTorch's operators in the loading thread or, with
# workers, in processes.
PREAMBLE = """
    import json, os, signal, sys, threading, time
    import torch, torch_xla
    import torch_xla.core.xla_model as xm
    import torch_xla.distributed.parallel_loader as pl
    from torch_xla.experimental.callback import on_ready_callback

    class Endless(torch.utils.data.Dataset):
        def __len__(self):
            return 10**9
        def __getitem__(self, index):
            return torch.randn(200, 200)

    def make(workers=0):
        data = torch.utils.data.DataLoader(Endless(), batch_size=8, num_workers=workers)
        return pl.MpDeviceLoader(data, "xla", host_to_device_transfer_threads=2)
"""

# Each program is a fork of one process, which has done the imports; what it leaves to the
# interpreter's end is the same.
RUN = """
    programs, folder = json.loads(sys.argv[-1]), sys.argv[-2]
    children = {}
    for name, program in programs.items():
        children[name] = os.fork()
        if children[name] == 0:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            os.dup2(os.open(os.path.join(folder, name), os.O_CREAT | os.O_WRONLY), 2)
            exec(program)
            sys.exit(0)
    status = {name: os.waitpid(child, 0)[1] for name, child in children.items()}
    print(json.dumps({name: os.waitstatus_to_exitcode(s) for name, s in status.items()}))
"""


def check(folder: pathlib.Path, ways: dict[str, tuple[str, int]]) -> None:
    programs = {name: textwrap.dedent(program) for name, (program, _) in ways.items()}
    ends = json.loads(run_in_process(PREAMBLE + RUN, str(folder), json.dumps(programs)))
    expected, found = {}, {}
    for name, (_, status) in ways.items():
        err = (folder / name).read_text()
        # The plugin's own lines begin so.
        said = [line for line in err.splitlines() if not line.startswith(("I0000", "WARNING: All"))]
        found[name] = ends[name], "".join(said[-1:])
        # After an interrupt Python ends by the signal, which is a status below zero.
        last_words = {1: "LookupError: mine", -2: "KeyboardInterrupt"}
        expected[name] = status, last_words.get(status, "")
    assert found == expected


@pytest.mark.parametrize("workers", [0, 2])
def test_every_way_out_of_a_loader_ends_with_its_own_status(tmp_path, workers):
    ways = {
        "break": ("for batch in make({}): break", 0),
        "exception": ("for batch in make({}): raise LookupError('mine')", 1),
        "exit in the loop": ("for batch in make({}): sys.exit(7)", 7),
        "interrupt": ("for batch in make({}): os.kill(os.getpid(), signal.SIGINT)", -2),
        "kept iterators": ("a = make({}); kept = iter(a), iter(a); [*map(next, kept)]", 0),
    }
    check(tmp_path, {name: (code.format(workers), end) for name, (code, end) in ways.items()})


def test_threads_at_work_do_not_disturb_an_exit(tmp_path):
    # The loader never gives a batch.
    barren = """
        def barren():
            while True:
                torch.randn(100, 100)
            yield
        threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        loop = iter(pl.MpDeviceLoader(barren(), "xla"))
        next(loop)
    """
    callback = """
        x = torch.randn(300, 300, device="xla")
        on_ready_callback(x @ x, lambda: torch.randn(3000, 300).sum())
        sys.exit(4)
    """
    closures = """
        for _ in range(1000):
            xm.add_step_closure(lambda: torch.randn(300, 300).sum(), run_async=True)
        torch_xla.sync()
        sys.exit(5)
    """
    check(
        tmp_path,
        {
            "barren": (barren, -2),
            "callback": (callback, 4),
            "closures": (closures, 5),
        },
    )
