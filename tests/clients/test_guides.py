"""The programs of the guides to torch_xla: the same calls in the same order, written anew.

S0 is "Running on XLA devices", S1 the overview of 2.x, S2 and S3 the guides of 1.3 and 1.4, S4 the
one on lazy tensors and diffusion models. What needs several devices runs on one.
"""

from __future__ import annotations

import copy

import pytest
import torch
from counts import counted
from processes import run_in_process
from torch import nn, optim

import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.data_parallel as dp
import torch_xla.distributed.parallel_loader as pl
import torch_xla.distributed.xla_multiprocessing as xmp
import torch_xla.utils.serialization as xser
import torch_xla.utils.utils as xu
from torch_xla.debug import metrics

LR, MOMENTUM = 0.05, 0.5


class Digits(nn.Module):
    """The small classifier that the guides call MNIST."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.layers = nn.Sequential(
            nn.Flatten(), nn.Linear(16, 12), nn.ReLU(), nn.Linear(12, 3), nn.LogSoftmax(dim=1)
        )

    def forward(self, x):
        return self.layers(x)


@pytest.fixture
def train_loader():
    generator = torch.Generator().manual_seed(5)
    data = torch.randn(40, 1, 4, 4, generator=generator)
    target = data.flatten(1)[:, :3].argmax(1)
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(data, target), batch_size=8)


@pytest.fixture
def trained(train_loader):
    """What one epoch on the CPU makes of the model's parameters."""
    model = Digits()
    optimizer = optim.SGD(model.parameters(), lr=LR, momentum=MOMENTUM)
    for data, target in train_loader:
        optimizer.zero_grad()
        nn.functional.nll_loss(model(data), target).backward()
        optimizer.step()
    return [p.detach() for p in model.parameters()]


def same(model, want):
    for parameter, expected in zip(model.parameters(), want, strict=True):
        torch.testing.assert_close(parameter.detach().cpu(), expected)


# ---- S0, S2, S3: tensors ------------------------------------------------------------------------


def test_create_and_print_a_tensor(capsys):
    t = torch.randn(2, 2, device=xm.xla_device())
    print(t.device)
    print(t)
    first, rest = capsys.readouterr().out.split("\n", 1)
    assert first == "xla:0"
    assert rest.startswith("tensor([[") and rest.rstrip().endswith("device='xla:0')")


def test_add_and_multiply_tensors():
    t0 = torch.randn(2, 2, device=xm.xla_device())
    t1 = torch.randn(2, 2, device=xm.xla_device())
    torch.testing.assert_close((t0 + t1).cpu(), t0.cpu() + t1.cpu())
    torch.testing.assert_close(t0.mm(t1).cpu(), t0.cpu().mm(t1.cpu()))


def test_use_a_module():
    l_in = torch.randn(10, device=xm.xla_device())
    linear = torch.nn.Linear(10, 20).to(xm.xla_device())
    l_out = linear(l_in)
    want = nn.functional.linear(l_in.cpu(), linear.weight.cpu(), linear.bias.cpu())
    torch.testing.assert_close(l_out.cpu(), want)


def test_mixed_devices_are_an_error():
    l_in = torch.randn(10, device=xm.xla_device())
    linear = torch.nn.Linear(10, 20).cpu()
    with pytest.raises(
        RuntimeError, match=r"Input tensor is not an XLA tensor: torch\.FloatTensor"
    ):
        linear(l_in)


def test_tensors_are_opaque_and_contiguous():
    t = torch.randn(2, 3, device=xm.xla_device()).t()
    assert t.is_contiguous()
    with pytest.raises((RuntimeError, NotImplementedError, TypeError)):
        t.numpy()


def test_a_moved_view_is_no_view_any_more():
    base = torch.zeros(4)
    view = base[:2].to(xm.xla_device())
    view.add_(1)
    assert base.tolist() == [0, 0, 0, 0] and view.tolist() == [1, 1]


# ---- S0 to S3: training -------------------------------------------------------------------------


def test_train_on_one_device_with_mark_step(train_loader, trained):
    device = xm.xla_device()
    model = Digits().train().to(device)
    loss_fn = nn.NLLLoss()
    optimizer = optim.SGD(model.parameters(), lr=LR, momentum=MOMENTUM)
    for data, target in train_loader:
        optimizer.zero_grad()
        data = data.to(device)
        target = target.to(device)
        output = model(data)
        loss = loss_fn(output, target)
        loss.backward()
        optimizer.step()
        xm.mark_step()
    same(model, trained)


def test_train_on_one_device_with_a_barrier_in_the_step(train_loader, trained):
    device = xm.xla_device()
    model = Digits().train().to(device)
    loss_fn = nn.NLLLoss()
    optimizer = optim.SGD(model.parameters(), lr=LR, momentum=MOMENTUM)
    for data, target in train_loader:
        optimizer.zero_grad()
        data = data.to(device)
        target = target.to(device)
        output = model(data)
        loss = loss_fn(output, target)
        loss.backward()
        xm.optimizer_step(optimizer, barrier=True)
    assert metrics.counter_value("MarkStep") == len(train_loader)
    same(model, trained)


def test_a_model_on_the_cpu_is_told(train_loader):
    """S2 shows this program without moving the model: its input is where its weights are not."""
    device = xm.xla_device()
    model = Digits()
    model.train()
    data, _ = next(iter(train_loader))
    with pytest.raises(RuntimeError, match="not an XLA tensor"):
        model(data.to(device))


def test_launch_with_a_device_loader(train_loader, trained):
    models = []

    def _mp_fn(index):
        device = xm.xla_device()
        mp_device_loader = pl.MpDeviceLoader(train_loader, device)
        model = Digits().train().to(device)
        loss_fn = nn.NLLLoss()
        optimizer = optim.SGD(model.parameters(), lr=LR, momentum=MOMENTUM)
        for data, target in mp_device_loader:
            optimizer.zero_grad()
            output = model(data)
            loss = loss_fn(output, target)
            loss.backward()
            xm.optimizer_step(optimizer)
        models.append(model)

    torch_xla.launch(_mp_fn, args=())
    same(models[0], trained)


def test_spawn_with_a_parallel_loader(train_loader, trained):
    models = []

    def _mp_fn(index):
        device = xm.xla_device()
        para_loader = pl.ParallelLoader(train_loader, [device])
        model = Digits().to(device)
        loss_fn = nn.NLLLoss()
        optimizer = optim.SGD(model.parameters(), lr=LR, momentum=MOMENTUM)
        model.train()
        for data, target in para_loader.per_device_loader(device):
            optimizer.zero_grad()
            output = model(data)
            loss = loss_fn(output, target)
            loss.backward()
            xm.optimizer_step(optimizer)
        models.append(model)

    xmp.spawn(_mp_fn, args=())
    same(models[0], trained)


def test_data_parallel_over_threads(train_loader, trained):
    devices = xm.get_xla_supported_devices()
    model_parallel = dp.DataParallel(Digits, device_ids=devices)

    def train_loop_fn(model, loader, device, context):
        loss_fn = nn.NLLLoss()
        optimizer = optim.SGD(model.parameters(), lr=LR, momentum=MOMENTUM)
        model.train()
        for _, (data, target) in loader:
            optimizer.zero_grad()
            output = model(data)
            loss = loss_fn(output, target)
            loss.backward()
            xm.optimizer_step(optimizer)

    num_epochs = 1
    for _ in range(1, num_epochs + 1):
        model_parallel(train_loop_fn, train_loader)
    same(model_parallel.models[0], trained)


def test_names_of_the_api_reference():
    assert xm.xla_device(n=0, devkind=None) == torch.device("xla:0")
    assert xm.get_xla_supported_devices(devkind=None, max_devices=1) == ["xla:0"]
    assert xm.xrt_world_size(defval=1) == 1
    assert xm.get_ordinal(defval=0) == 0
    assert xm.is_master_ordinal()
    samples = xu.SampleGenerator(data=torch.ones(2), sample_count=2)
    loader = pl.ParallelLoader(
        samples,
        [xm.xla_device()],
        batchdim=0,
        fixed_batch_size=False,
        loader_prefetch_size=8,
        device_prefetch_size=4,
    )
    assert [t.sum().item() for t in loader.per_device_loader(xm.xla_device())] == [2, 2]


def test_bfloat16_by_environment_variable():
    out = run_in_process(
        """
        import torch
        import torch_xla.core.xla_model as xm
        t = torch.tensor([1.0 + 2**-10], device=xm.xla_device())
        print(t.dtype, t.cpu().dtype, t.item())
        """,
        XLA_USE_BF16="1",
    )
    assert out == "torch.float32 torch.float32 1.0"


# ---- S0, S2, S3: saving and copying -------------------------------------------------------------


def test_save_tensors_from_the_cpu(tmp_path):
    device = xm.xla_device()
    t0 = torch.randn(2, 2, device=device)
    t1 = torch.randn(2, 2, device=device)
    tensors = (t0.cpu(), t1.cpu())
    torch.save(tensors, tmp_path / "tensors.pt")
    tensors = torch.load(tmp_path / "tensors.pt")
    loaded0 = tensors[0].to(device)
    loaded1 = tensors[1].to(device)
    assert torch.equal(loaded0, t0) and torch.equal(loaded1, t1)


def test_save_a_model_by_the_utilities(tmp_path):
    model = Digits().to(xm.xla_device())
    path = str(tmp_path / "model.pt")
    xm.save(model.state_dict(), path)
    loaded = torch.load(path)
    assert all(value.device.type == "cpu" for value in loaded.values())
    streamed = str(tmp_path / "streamed.pt")
    xser.save(model.state_dict(), streamed)
    state_dict = xser.load(streamed)
    for name, value in model.state_dict().items():
        assert torch.equal(loaded[name], value.cpu())
        assert torch.equal(state_dict[name].cpu(), value.cpu())


def test_save_tensors_from_the_device(tmp_path):
    t0 = torch.randn(2, 2, device=xm.xla_device())
    t1 = torch.randn(2, 2, device=xm.xla_device())
    tensors = (t0, t1)
    torch.save(tensors, tmp_path / "tensors.pt")
    tensors = torch.load(tmp_path / "tensors.pt")
    assert [t.device for t in tensors] == [xm.xla_device()] * 2
    assert torch.equal(tensors[0], t0) and torch.equal(tensors[1], t1)


def test_save_a_tensor_with_its_view(tmp_path):
    t = torch.randn(2, 2, device=xm.xla_device())
    t_view = t[0:2]
    tensors = (t, t_view)
    with pytest.raises(RuntimeError, match="Tensor ID 2 is sharing a view with tensor ID 1"):
        torch.save(tensors, tmp_path / "tensors.pt")


def test_copy_is_deep_and_view_is_not():
    t = torch.zeros(2, 2, device=xm.xla_device())
    copied, shared = copy.copy(t), t.view(2, 2)
    t.add_(1)
    assert copied.sum().item() == 0 and shared.sum().item() == 4


def test_persistent_cache(tmp_path):
    program = f"""
        import torch
        import torch_xla
        import torch_xla.runtime as xr
        import torch_xla.debug.metrics as metrics

        def _mp_fn(index):
            xr.initialize_cache(f"{tmp_path}/xla_cache_{{index}}", readonly=False)
            print((torch.ones(3, device="xla") * 5).sum().item())
            print(metrics.counter_value("UncachedCompile"))

        torch_xla.launch(_mp_fn, args=())
    """
    assert run_in_process(program).split()[0] == "15.0"
    assert [entry.name for entry in tmp_path.iterdir()] == ["xla_cache_0"]
    run_in_process(program)


# ---- S1, S4: tracing and barriers ---------------------------------------------------------------


def test_results_are_computed_at_a_synchronization_point():
    with counted() as counts:
        before = torch_xla._XLAC._computation_stats()
        a = torch.ones(2, 2, device=torch_xla.device())
        b = a @ a + 1
        assert torch_xla._XLAC._computation_stats() == before
        torch_xla.sync()
        assert b.tolist() == [[3, 3], [3, 3]]
    assert counts.executed == 1


def tensors_on_device():
    device = xm.xla_device()
    return [
        (torch.full((2,), float(i), device=device), torch.ones(2, device=device)) for i in range(3)
    ]


def test_a_loop_without_a_barrier_is_one_graph():
    pairs = tensors_on_device()
    z = torch.zeros(2, device=xm.xla_device())
    with counted() as counts:
        for x, y in pairs:
            z += x + y
        assert z.tolist() == [6, 6]
    assert counts.compiled == 1 and counts.executed == 1


def test_a_loop_with_a_barrier_is_one_small_graph_many_times():
    pairs = tensors_on_device()
    z = torch.zeros(2, device=xm.xla_device())
    with counted() as counts:
        for x, y in pairs:
            z += x + y
            xm.mark_step()
        assert z.tolist() == [6, 6]
    assert counts.compiled == 1 and counts.executed == 3


def test_reading_a_value_runs_only_what_it_needs():
    device = xm.xla_device()
    x, y = torch.ones(2, device=device), torch.ones(2, device=device)
    xm.mark_step()
    with counted() as counts:
        needed, other = x + y, x * y
        assert needed.tolist() == [2, 2]
        first = counts_now()
        assert needed.tolist() == [2, 2]
        assert counts_now() == first
        assert other.tolist() == [1, 1]
    assert counts.executed == 2


def counts_now():
    return torch_xla._XLAC._computation_stats()


def test_other_shapes_are_other_graphs_and_padding_helps():
    device = xm.xla_device()
    lengths = [3, 8, 4]  # what grows by 1 or 2 is compiled for all lengths up to a bound

    def step(x):
        y = (x * 2).sum()
        xm.mark_step()
        return y

    inputs = [torch.ones(n).to(device) for n in lengths]
    padded = [nn.functional.pad(torch.ones(n), (0, 9 - n)).to(device) for n in lengths]
    with counted() as counts:
        for x in inputs:
            step(x)
    assert counts.compiled == 3
    with counted() as counts:
        assert [step(x).item() for x in padded] == [6, 16, 8]
    assert counts.compiled == 1


class Denoiser(nn.Module):
    """What stands for the U-net of a diffusion pipeline."""

    def __init__(self):
        super().__init__()
        self.net = nn.Conv2d(2, 2, 3, padding=1)

    def forward(self, latents, t):
        return self.net(latents) * (1 + t)


def sample(model, latents, timesteps, barrier):
    """The inference loop; the index is passed on, so that nothing is read with `.item()`."""
    for index in range(len(timesteps)):
        noise = model(latents, timesteps[index])
        latents = latents - 0.1 * noise
        if barrier:
            xm.mark_step()
    return latents


def test_diffusion_loop_with_a_barrier_compiles_its_step_few_times():
    device = xm.xla_device()
    with torch.no_grad():
        model = Denoiser()
        start, timesteps = torch.randn(1, 2, 4, 4), torch.linspace(1, 0, 6)
        want = sample(model, start, timesteps, barrier=False)
        model = model.to(device)
        latents, steps = start.to(torch.device(device)), timesteps.to(device)
        with counted() as counts:
            got = sample(model, latents, steps, barrier=True)
        # The index changes: once compiled with it, once with it as data.
        assert counts.compiled <= 2 and counts.executed == 6
        torch.testing.assert_close(got.cpu(), want)
        with counted() as counts:
            sample(model, latents, steps, barrier=True)
        assert counts.compiled == 0
    assert metrics.counter_value("aten::_local_scalar_dense") is None


@pytest.mark.filterwarnings("ignore:aten..nonzero has")
def test_item_and_nonzero_ask_the_device():
    t = torch.tensor([0.0, 3.0], device=xm.xla_device())
    assert t[1].item() == 3
    assert t.nonzero().tolist() == [[1]]
    assert metrics.counter_value("aten::_local_scalar_dense") == 1


def test_profile_a_loop():
    xp = pytest.importorskip("torch_xla.debug.profiler")
    port = xu.get_free_tcp_ports()[0]
    server = xp.start_server(port)
    with xp.Trace("pipeline"):
        y = torch.ones(2, device=xm.xla_device()) + 1
    xm.mark_step()
    assert y.tolist() == [2, 2] and server is not None


def test_run_a_function_on_every_device():
    seen = []

    def my_function(index, argument):
        seen.append((index, argument, str(xm.xla_device())))

    torch_xla.launch(my_function, args=(0,))
    torch_xla.launch(my_function, args=(1,), debug_single_process=True)
    assert seen == [(0, 0, "xla:0"), (0, 1, "xla:0")]


def test_zero_and_one_are_constants_at_first_unless_told_otherwise():
    program = """
        import torch
        import torch_xla
        import torch_xla.debug.metrics as metrics
        x = torch.full((2,), 3.0).to("xla")
        for scalar in (0, 1, 2, 3):
            y = x * scalar
            torch_xla.sync()
        print(metrics.counter_value("UncachedCompile"))
    """
    # The guide: once for each of the two, and once for the others.
    assert run_in_process(program) == "2"
    assert run_in_process(program, XLA_NO_SPECIAL_SCALARS="1") == "1"
