"""Random numbers: repeatable by seeds and generators, and of the right distributions."""

from __future__ import annotations

import math

import pytest
import torch
from processes import run_in_process

import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.runtime as xr

N = 40_000


def draw(seed):
    torch_xla.manual_seed(seed)
    return torch.rand(5, device="xla"), torch.randn(5, device="xla")


def test_seed_repeats_the_sequence():
    a, b = draw(7), draw(7)
    c = draw(8)
    assert torch.equal(a[0].cpu(), b[0].cpu())
    assert torch.equal(a[1].cpu(), b[1].cpu())
    assert not torch.equal(a[0].cpu(), c[0].cpu())
    assert not torch.equal(a[0].cpu(), a[1].cpu())


def test_torch_manual_seed_reaches_the_device():
    torch.manual_seed(3)
    a = torch.rand(4, device="xla").tolist()
    torch.manual_seed(3)
    assert torch.rand(4, device="xla").tolist() == a


@pytest.mark.skipif(xr.device_type() != "CPU", reason="asks the CPU for three devices")
def test_torch_manual_seed_in_a_replica_thread_seeds_its_device_alone():
    program = """
        import threading
        import torch, torch_xla
        from torch_xla.distributed.data_parallel import DataParallel

        def seeds():
            return [generator.initial_seed() for generator in torch.xla.default_generators]

        def in_thread(function):
            thread = threading.Thread(target=function)
            thread.start()
            thread.join()

        def seed_the_second():
            torch.xla.set_device(1)
            torch.manual_seed(11)

        def seed_the_third():
            with torch.xla.device(2):
                torch.manual_seed(12)

        torch.manual_seed(1)
        assert not torch.xla.is_initialized()
        assert seeds() == [1, 1, 1]
        in_thread(seed_the_second)
        in_thread(seed_the_third)
        assert seeds() == [1, 11, 12], seeds()

        def replica(model, loader, device, context):
            torch.manual_seed(20 + device.index)
            return len(list(loader))

        replicas = DataParallel(torch.nn.Linear(2, 2), torch_xla.devices())
        assert replicas(replica, [torch.ones(1)] * 3) == [1, 1, 1]
        assert seeds() == [20, 21, 22], seeds()

        # A thread with no device of its own, and the main one whatever its device.
        in_thread(lambda: torch.manual_seed(3))
        assert seeds() == [3, 3, 3], seeds()
        torch.xla.set_device(1)
        with torch.xla.device(2):
            torch.manual_seed(4)
        assert seeds() == [4, 4, 4], seeds()
        print("right")
    """
    assert run_in_process(program, CPU_NUM_DEVICES="3") == "right"


def test_barriers_do_not_change_the_sequence():
    torch_xla.manual_seed(1)
    a = [torch.rand(3, device="xla") for _ in range(4)]
    torch_xla.sync()
    torch_xla.manual_seed(1)
    b = []
    for _ in range(4):
        b.append(torch.rand(3, device="xla"))
        torch_xla.sync()
    for x, y in zip(a, b, strict=True):
        assert torch.equal(x.cpu(), y.cpu())


def test_drawing_leaves_the_cpu_generator_alone():
    torch.manual_seed(5)
    want = torch.rand(3)
    torch.manual_seed(5)
    torch.rand(100, device="xla")
    torch_xla.sync()
    assert torch.equal(torch.rand(3), want)


def test_generators_are_independent_and_repeatable():
    g, h = torch.Generator(device="xla"), torch.Generator(device="xla")
    g.manual_seed(11)
    h.manual_seed(11)
    a = torch.rand(4, device="xla", generator=g)
    torch.rand(4, device="xla")
    b = torch.rand(4, device="xla", generator=h)
    assert torch.equal(a.cpu(), b.cpu())
    assert g.initial_seed() == 11
    state = g.get_state()
    c = torch.randn(4, device="xla", generator=g)
    g.set_state(state)
    assert torch.equal(torch.randn(4, device="xla", generator=g).cpu(), c.cpu())
    assert g.device.type == "xla"


@pytest.mark.parametrize(
    "call",
    [
        lambda x: torch.rand_like(x),
        lambda x: torch.randn_like(x),
        lambda x: torch.randint(0, 1000, x.shape, device=x.device),
        lambda x: torch.randperm(50, device=x.device),
        lambda x: torch.bernoulli(x * 0 + 0.5),
        lambda x: torch.nn.functional.dropout(x + 1, 0.5),
        lambda x: x.clone().uniform_(2, 3),
        lambda x: x.clone().normal_(1, 2),
        lambda x: x.clone().exponential_(0.5),
        lambda x: x.clone().random_(0, 100),
        lambda x: x.clone().geometric_(0.3),
        lambda x: x.clone().log_normal_(),
        lambda x: x.clone().cauchy_(),
        lambda x: torch.multinomial(x * 0 + 1, 20, replacement=True),
        lambda x: torch.normal(x, 2.0),
        lambda x: torch.poisson(x * 0 + 4),
    ],
)
def test_every_random_op_repeats_and_varies(call):
    x = torch.arange(50.0, device="xla") / 50
    torch_xla.manual_seed(2)
    a, b = call(x), call(x)
    torch_xla.manual_seed(2)
    c = call(x)
    assert torch.equal(a.cpu(), c.cpu())
    assert not torch.equal(a.cpu(), b.cpu())


def test_two_dropouts_in_one_graph_differ():
    x = torch.ones(1000, device="xla")
    a = torch.nn.functional.dropout(x, 0.5)
    b = torch.nn.functional.dropout(x, 0.5)
    torch_xla.sync()
    assert not torch.equal(a.cpu(), b.cpu())
    assert 400 < int((a == 0).sum()) < 600
    assert set(a.tolist()) == {0.0, 2.0}


def test_dropout_masks_its_gradient_alike():
    x = torch.ones(200, device="xla", requires_grad=True)
    y = torch.nn.functional.dropout(x, 0.25)
    y.sum().backward()
    assert torch.equal(x.grad.cpu(), y.detach().cpu())


def test_new_mask_each_step_from_one_program():
    x = torch.ones(100, device="xla")
    masks = []
    for _ in range(3):
        masks.append(torch.nn.functional.dropout(x, 0.5))
        torch_xla.sync()
    assert not torch.equal(masks[0].cpu(), masks[1].cpu())
    assert not torch.equal(masks[1].cpu(), masks[2].cpu())


def distance(sample, cdf):
    """Kolmogorov and Smirnov's: the greatest distance of the sample's distribution from `cdf`."""
    ordered = sample.double().cpu().sort().values
    steps = torch.arange(1, len(ordered) + 1, dtype=torch.float64) / len(ordered)
    return float((cdf(ordered) - steps).abs().max())


# The distance that one sample in ten thousand exceeds.
LIMIT = 2.2 / math.sqrt(N)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(
    ("fill", "cdf"),
    [
        (lambda x: x.uniform_(-1, 3), lambda v: ((v + 1) / 4).clamp(0, 1)),
        (lambda x: x.normal_(2, 3), lambda v: 0.5 * (1 + torch.erf((v - 2) / (3 * math.sqrt(2))))),
        (lambda x: x.exponential_(0.7), lambda v: 1 - torch.exp(-0.7 * v)),
        (lambda x: x.cauchy_(1, 2), lambda v: torch.atan((v - 1) / 2) / math.pi + 0.5),
        (
            lambda x: x.log_normal_(0.5, 0.8),
            lambda v: 0.5 * (1 + torch.erf((v.log() - 0.5) / (0.8 * math.sqrt(2)))),
        ),
    ],
    ids=["uniform", "normal", "exponential", "cauchy", "log_normal"],
)
def test_continuous_distributions(fill, cdf, dtype):
    torch_xla.manual_seed(17)
    x = fill(torch.empty(N, device="xla", dtype=dtype))
    assert x.dtype == dtype
    assert distance(x, cdf) < LIMIT


def test_uniform_stays_below_its_limit():
    torch_xla.manual_seed(0)
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        x = torch.rand(100_000, device="xla", dtype=dtype).cpu().float()
        assert float(x.min()) >= 0
        assert float(x.max()) < 1


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_bernoulli_and_geometric_means(p):
    torch_xla.manual_seed(4)
    x = torch.empty(N, device="xla")
    assert float(x.bernoulli_(p).mean()) == pytest.approx(p, abs=0.012)
    assert float(x.geometric_(p).mean()) == pytest.approx(1 / p, rel=0.05)


def test_randint_is_uniform():
    torch_xla.manual_seed(6)
    x = torch.randint(-2, 8, (N,), device="xla").cpu()
    assert int(x.min()) == -2
    assert int(x.max()) == 7
    counts = torch.bincount(x + 2).double()
    chi2 = float(((counts - N / 10) ** 2 / (N / 10)).sum())
    assert chi2 < 34  # 9 degrees of freedom: one in ten thousand


def test_randperm_is_a_permutation():
    x = torch.randperm(1000, device="xla").cpu()
    assert torch.equal(x.sort().values, torch.arange(1000))
    assert not torch.equal(x, torch.arange(1000))


def test_multinomial_follows_its_weights():
    torch_xla.manual_seed(9)
    weights = torch.tensor([1.0, 2.0, 0.0, 5.0], device="xla")
    x = torch.multinomial(weights, N, replacement=True).cpu()
    share = torch.bincount(x, minlength=4).double() / N
    torch.testing.assert_close(
        share, torch.tensor([0.125, 0.25, 0, 0.625]).double(), atol=0.015, rtol=0
    )
    picks = torch.multinomial(weights.expand(50, 4), 3).cpu()
    assert all(len(set(row.tolist())) == 3 for row in picks)
    assert 2 not in picks


def test_poisson_has_mean_and_variance():
    torch_xla.manual_seed(10)
    x = torch.poisson(torch.full((N,), 3.5, device="xla")).cpu()
    assert float(x.mean()) == pytest.approx(3.5, rel=0.03)
    assert float(x.var()) == pytest.approx(3.5, rel=0.06)


def test_fork_rng_restores_the_device_state():
    torch_xla.manual_seed(12)
    with torch.random.fork_rng(devices=[0], device_type="xla"):
        torch.rand(3, device="xla")
    a = torch.rand(3, device="xla")
    torch_xla.manual_seed(12)
    assert torch.equal(torch.rand(3, device="xla").cpu(), a.cpu())


def test_random_states_are_checked(device):
    for bad in ("a", 1.5, None):
        with pytest.raises(TypeError):
            xm.set_rng_state(bad)
    with pytest.raises(ValueError, match="no seed and no state"):
        xm.set_rng_state(2**127)
    for call in (xm.set_rng_state, torch_xla.manual_seed):
        with pytest.raises(RuntimeError, match="device index 77 does not exist"):
            call(1, device="xla:77")
    xm.set_rng_state(torch.tensor(5))
    assert xm.get_rng_state() == 5


def test_forks_nest_and_restore_after_errors(device):
    xm.set_rng_state(9)
    before = xm.get_rng_state()
    with xm.fork_rng(), xm.fork_rng():
        first = torch.rand(3, device=device).tolist()
    with pytest.raises(KeyError), xm.fork_rng():
        torch.rand(3, device=device)
        raise KeyError
    assert xm.get_rng_state() == before
    with xm.fork_rng(enabled=False):
        assert torch.rand(3, device=device).tolist() == first
    assert xm.get_rng_state() != before


CERTAIN = {
    "poisson": (torch.poisson, [(0.0,), (math.inf,)]),
    "standard gamma": (torch._standard_gamma, [(math.inf,), (math.nan,), (-1.0,), (0.0,)]),
    "dirichlet": (torch._sample_dirichlet, [(math.nan, 1.0)]),
    "binomial": (
        lambda x: torch.binomial(x[:1], x[1:]),
        [(10, -1), (-3, 0.5), (10, 0), (100, 1), (100, 2), (10, math.inf), (10, math.nan)],
    ),
}


@pytest.mark.parametrize("name", CERTAIN)
def test_parameters_of_which_nothing_is_accepted_end(name, device):
    """A program of a loop that no draw ends can't be ended either."""
    function, parameters = CERTAIN[name]
    for each in parameters:
        x = torch.tensor(each, dtype=torch.float32)
        # Eager PyTorch never ends for an infinite rate.
        want = torch.tensor([math.inf]) if (name, *each) == ("poisson", math.inf) else function(x)
        torch.testing.assert_close(function(x.to(device)).cpu(), want, equal_nan=True)


def test_a_parameter_that_makes_no_sense_leaves_the_others(device):
    rates = torch.tensor([math.nan, -1.0, 3.0, 200.0], device=device).repeat_interleave(N // 4)
    drawn = torch.poisson(rates).cpu().reshape(4, -1)
    assert drawn[:2].isnan().all()
    torch.testing.assert_close(drawn[2:].mean(1), torch.tensor([3.0, 200.0]), rtol=0.02, atol=0)
    half = torch.tensor(0.5, device=device)
    counts = torch.binomial(torch.tensor([math.nan, math.inf, 40.0], device=device), half).cpu()
    assert counts[0].isnan() and counts[1] == math.inf and 0 <= counts[2] <= 40
