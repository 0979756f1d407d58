"""Several Python threads record, run and read at once."""

from __future__ import annotations

import math
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from counts import counted
from processes import run_in_process

import torch_xla

THREADS = 6


def in_threads(function, count=THREADS):
    """The results of function(0), function(1), ... run at once."""
    start = threading.Barrier(count)

    def body(i):
        start.wait()
        return function(i)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(body, range(count)))


def test_threads_record_and_read_their_own_tensors():
    def work(i):
        total = 0.0
        for step in range(30):
            x = torch.full((5,), float(i), device="xla")
            for _ in range(10):
                x = x * 1.5 + step
            total += float(x.sum())
        return total

    def want(i):
        total = 0.0
        for step in range(30):
            value = float(i)
            for _ in range(10):
                value = value * 1.5 + step
            total += 5 * value
        return total

    got = in_threads(work)
    assert got == pytest.approx([want(i) for i in range(THREADS)], rel=1e-5)


def test_threads_write_through_views_of_one_tensor():
    x = torch.zeros(THREADS, 50, device="xla")

    def work(i):
        for step in range(50):
            x[i, step] += i + 1
            if step % 10 == 9:
                torch_xla.sync()

    in_threads(work)
    want = torch.arange(1.0, THREADS + 1)[:, None].expand(THREADS, 50)
    assert torch.equal(x.cpu(), want)


def test_threads_sync_while_others_record():
    def work(i):
        x = torch.zeros(3, device="xla")
        for step in range(40):
            x.add_(1)
            if i % 2:
                torch_xla.sync(wait=step % 5 == 0)
        return x.tolist()

    assert in_threads(work) == [[40.0] * 3] * THREADS


def test_one_program_in_many_threads_compiles_once():
    def work(i):
        x = torch.full((11,), i + 2.5, device="xla")
        return (x.sin() * 2.5).exp().sum().item()

    work(1)
    with counted() as counts:
        for _ in range(3):
            got = in_threads(work)
    assert counts.compiled == 0
    want = [11 * math.exp(2.5 * math.sin(i + 2.5)) for i in range(THREADS)]
    assert got == pytest.approx(want, rel=1e-5)


def test_threads_train_models_of_their_own():
    def work(i):
        model = torch.nn.Linear(4, 2).to("xla")
        with torch.no_grad():
            model.weight.fill_(0.1 * (i + 1))
            model.bias.zero_()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        x = torch.ones(3, 4, device="xla")
        for _ in range(5):
            optimizer.zero_grad()
            (model(x) ** 2).mean().backward()
            optimizer.step()
            torch_xla.sync()
        return model.weight.detach().cpu()

    def want(i):
        weight = torch.full((2, 4), 0.1 * (i + 1), requires_grad=True)
        bias = torch.zeros(2, requires_grad=True)
        optimizer = torch.optim.SGD([weight, bias], lr=0.1)
        for _ in range(5):
            optimizer.zero_grad()
            (torch.nn.functional.linear(torch.ones(3, 4), weight, bias) ** 2).mean().backward()
            optimizer.step()
        return weight.detach()

    for i, got in enumerate(in_threads(work, 4)):
        torch.testing.assert_close(got, want(i))


def test_errors_in_one_thread_leave_the_others_alone():
    def work(i):
        good = 0
        for _ in range(20):
            x = torch.ones(4, device="xla")
            if i % 2:
                with pytest.raises(RuntimeError):
                    x + torch.ones(3, device="xla")
            good += int((x + 1).sum().item() == 8)
        return good

    assert in_threads(work) == [20] * THREADS


def test_tensors_move_between_threads():
    x = torch.arange(4.0, device="xla")

    def work(i):
        return x * i

    for i, y in enumerate(in_threads(work)):
        assert y.tolist() == [0.0, i, 2.0 * i, 3.0 * i]


def test_threads_on_devices_of_their_own():
    program = """
        import threading
        import torch, torch_xla
        from concurrent.futures import ThreadPoolExecutor

        start = threading.Barrier(4)

        def work(i):
            start.wait()
            device = torch_xla.device(i)
            x = torch.full((8,), float(i), device=device)
            w = torch.ones(8, device=device, requires_grad=True)
            for step in range(25):
                y = (x * w + step).sum()
                y.backward()
                x = x + 1
                if step % 5 == 4:
                    x.cpu()
            moved = x.to(torch_xla.device((i + 1) % 4))
            return x.tolist()[0], w.grad.tolist()[0], moved.tolist()[0]

        with ThreadPoolExecutor(4) as pool:
            for i, (x, grad, moved) in enumerate(pool.map(work, range(4))):
                assert x == moved == i + 25, (i, x, moved)
                assert grad == sum(i + s for s in range(25)), (i, grad)
        print("right")
    """
    assert run_in_process(program, CPU_NUM_DEVICES="4") == "right"


@pytest.mark.parametrize("in_workers", [False, True], ids=["main", "workers"])
def test_backward_runs_in_the_calling_thread(in_workers):
    def work(_):
        seen = []
        x = torch.ones(3, device="xla", requires_grad=True)
        y = x.sin()
        y.register_hook(lambda grad: seen.append(threading.get_ident()))
        y.sum().backward()
        return seen == [threading.get_ident()]

    assert all(in_threads(work)) if in_workers else work(0)


def test_backward_in_a_thread_of_the_device_can_be_chosen():
    seen = []
    x = torch.ones(3, device="xla", requires_grad=True)
    with torch.autograd.set_multithreading_enabled(True):
        y = x.sin()
        y.register_hook(lambda grad: seen.append(threading.get_ident()))
        y.sum().backward()
    assert seen != [threading.get_ident()]
    assert not torch.autograd.is_multithreading_enabled()


def test_compiled_parts_leave_eager_mode_of_other_threads_alone():
    from torch_xla.experimental import eager_mode, is_eager_mode

    seen = []
    is_inside, may_leave = threading.Event(), threading.Event()

    def other():
        with torch_xla.compile():
            is_inside.set()
            seen.append(is_eager_mode())
            may_leave.wait(60)
        seen.append(is_eager_mode())

    eager_mode(True)
    try:
        thread = threading.Thread(target=other)
        thread.start()
        is_inside.wait(60)
        assert is_eager_mode()
        with torch_xla.compile():
            assert not is_eager_mode()
            may_leave.set()
            thread.join()
        assert is_eager_mode() and seen == [False, True]
    finally:
        may_leave.set()
        eager_mode(False)


def test_donors_of_other_threads_keep_their_memory():
    from torch_xla.utils.buffer_donor_context import alias_with_buffer_donor_config

    x = torch.ones(4, device="xla")
    torch_xla.sync()
    torch.ops.xla.dynamo_set_buffer_donor_(x, True)
    y = x + 1
    with alias_with_buffer_donor_config(should_alias=True), ThreadPoolExecutor(1) as pool:
        pool.submit(torch_xla.sync).result()
    assert y.tolist() == [2] * 4 and x.tolist() == [1] * 4
