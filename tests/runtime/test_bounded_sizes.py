"""Graphs that come again with other sizes are compiled for all sizes up to a bound, and give what
the CPU gives for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import size_programs
import torch
from counts import counted
from torch import Tensor
from torch.nn import functional
from with_settings import setting

import torch_xla
from torch_xla.debug import metrics
from torch_xla.experimental.assume_pure import assume_pure
from torch_xla.utils import dlpack

GROWING = range(5, 45)
# Of random programs in one run of the tests.
PROGRAMS = 40
PER_TEST = 10
# Of operators, one in so many; the rest in `make fuzz`.
OPERATOR_STEP = 7


@pytest.fixture(autouse=True)
def cleared() -> Iterator[None]:
    torch_xla._XLAC._clear_compilation_cache()
    with setting(bounded_sizes=True):
        yield


def run(function: Callable[..., Tensor], sizes: range, width: int = 4) -> int:
    """How many programs the function took for a tensor [2, n, width] of each size; checks it."""
    torch_xla.sync()
    compiled = 0
    for n in sizes:
        x = torch.randn(2, n, width)
        on_xla = x.to("xla")
        with counted() as counts:
            result = function(on_xla)
            torch_xla.sync()
        compiled += counts.compiled
        torch.testing.assert_close(result.cpu(), function(x), rtol=1e-5, atol=1e-5)
    return compiled


def attend(x: Tensor) -> Tensor:
    return functional.scaled_dot_product_attention(x[:, None, -1:], x[:, None], x[:, None])


def gradient(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    def of(x: Tensor) -> Tensor:
        x = x.detach().requires_grad_()
        return torch.autograd.grad(function(x).sum(), x)[0]

    return of


def halves(x: Tensor) -> Tensor:
    return x[:, torch.arange(x.shape[1], device=x.device) // 2]


def most_of_fifty(x: Tensor) -> Tensor:
    return (torch.arange(50.0, device=x.device) * 7).cos().topk(x.shape[1]).values * x[0, :, 0]


def classes(x: Tensor) -> Tensor:
    return torch.arange(x.shape[0] * x.shape[1], device=x.device)


def images(x: Tensor) -> Tensor:
    """As many images as the size, of two channels."""
    return x.transpose(0, 1).unsqueeze(-1) * WIDTHS.to(x.device)


ROWS = torch.arange(16.0).reshape(4, 4).cos()
WIDTHS = torch.arange(5.0).sin()
FILTER = torch.arange(54.0).reshape(3, 2, 3, 3).cos()
FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "pointwise": lambda x: (x * 2 + 1).exp(),
    "infinities behind": lambda x: (1 / (x - x)).nan_to_num(0.0).sum(),
    "sum": lambda x: x.sum(1),
    "greatest": lambda x: x.amax(1),
    "least": lambda x: (x + 9).min(),
    "place": lambda x: x.argmax(1),
    "softmax": lambda x: x.softmax(1),
    "product": lambda x: x.transpose(1, 2) @ x,
    "attention": attend,
    "last": lambda x: x[:, -1:] * 2,
    "all but one": lambda x: x[:, 1:] - x[:, :-1],
    "appended": lambda x: torch.cat([x, x[:, :1]], dim=1).cumsum(1),
    "padded": lambda x: functional.pad(x, (0, 0, 0, 100 - x.shape[1])),
    "count": lambda x: torch.arange(x.shape[1], device=x.device) * 2,
    "reshaped": lambda x: x.reshape(2, -1, 2, 2).transpose(1, 2) + 1,
    "indices from the end": lambda x: x[:, torch.arange(x.shape[1], device=x.device) - x.shape[1]],
    "mask": lambda x: x.masked_fill(x > 0, 0).tril(),
    "mean loss": lambda x: functional.mse_loss(x, x.cos()),
    "summed loss": lambda x: functional.smooth_l1_loss(x, x.cos(), reduction="sum"),
    "each loss": lambda x: functional.huber_loss(x, x.cos(), reduction="none"),
    "gradient of mean loss": gradient(lambda x: functional.huber_loss(x, x.detach().cos())),
    "gradient of summed loss": gradient(
        lambda x: functional.smooth_l1_loss(x, x.detach().cos(), reduction="sum")
    ),
    "gradient of picked rows": gradient(lambda x: halves(x) * halves(x)),
    "greatest of fifty": most_of_fifty,
    "gradient of attention": gradient(attend),
    "gradient of the last": gradient(lambda x: x[:, -1].softmax(-1)),
    "mean of all": lambda x: x.mean(),
    "means": lambda x: x.mean(1) - x.mean((1, 2), keepdim=True).squeeze(1),
    "gradient of means": gradient(lambda x: x.mean(1).square()),
    "convolution": lambda x: functional.conv2d(images(x), FILTER.to(x.device)),
    "gradient of a convolution": gradient(
        lambda x: functional.conv2d(images(x), FILTER.to(x.device), padding=1).cos()
    ),
    "pooled": lambda x: functional.avg_pool2d(functional.max_pool2d(images(x), 2), 2),
    "gradient of pools": gradient(
        lambda x: functional.avg_pool2d(functional.max_pool2d(images(x), 2).cos(), 2)
    ),
    "batch norm": lambda x: functional.batch_norm(images(x), None, None, training=True),
    "batch norm of sequences": lambda x: functional.batch_norm(
        x.transpose(1, 2), None, None, training=True
    ),
    "gradient of batch norm": gradient(
        lambda x: functional.batch_norm(images(x), None, None, training=True).cos()
    ),
    "gradient of group norm": gradient(
        lambda x: functional.group_norm(images(x), 2, eps=1).cos() * images(x)
    ),
}
# What depends on `n` by its sizes alone.
RANDOM: dict[str, Callable[[Tensor], Tensor]] = {
    "uniform": lambda x: torch.rand(x.shape, device=x.device),
    "normal": torch.randn_like,
    "normal of means": lambda x: torch.normal(x, 2.0),
    "double": lambda x: torch.rand_like(x, dtype=torch.float64),
    "complex": lambda x: torch.randn_like(x, dtype=torch.complex64),
    "integers": lambda x: torch.randint(-9, 1000, x.shape, device=x.device),
    "exponential": lambda x: x.clone().exponential_(),
    "bernoulli": lambda x: torch.bernoulli(x / 2),
    "dropout": lambda x: functional.dropout(x, 0.3) + functional.dropout(x, 0.4),
    "transposed": lambda x: functional.dropout(x.transpose(1, 2), 0.3),
    "gradient of dropout": gradient(lambda x: functional.dropout(x, 0.3) * x),
}
# What has twice as many rows grows beyond a bound.
JOINED: dict[str, Callable[[Tensor], Tensor]] = {
    "gradient of a layer": gradient(
        lambda x: functional.layer_norm(functional.linear(x, ROWS.to(x.device)), (4,), eps=1).cos()
    ),
    "joined": lambda x: x.flatten(0, 1).cumsum(0),
    "loss of classes": lambda x: functional.cross_entropy(x.flatten(0, 1), classes(x) % 4),
    "gradient of a loss of classes": gradient(
        lambda x: functional.cross_entropy(x[:, 1:].flatten(0, 1), classes(x)[2:] % 4)
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_growing_sizes_are_one_program(name: str):
    # One for the first size, one for all up to the bound.
    assert run(FUNCTIONS[name], GROWING) == 2
    # Another one to read a result that is a view.
    assert metrics.counter_value("BoundedCompile") in (1, 2)


def bounded_numbers(function: Callable[[Tensor], Tensor]) -> list[Tensor]:
    """What the function draws for each size by one program, once it was checked to be the same by a
    program for each."""

    def numbers() -> list[Tensor]:
        torch.manual_seed(7)
        return [function(torch.ones(2, n, 4).to("xla")).cpu() for n in GROWING]

    with setting(bounded_sizes=False, bounded_growth=False):
        want = numbers()
    torch_xla._XLAC._clear_compilation_cache()
    with counted() as counts:
        got = numbers()
    assert counts.compiled == 2
    assert metrics.counter_value("BoundedCompile") == 1
    # Functions of the same bits may round otherwise in another program.
    torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-6)
    return got


@pytest.mark.parametrize("name", RANDOM)
def test_random_numbers_are_those_of_each_size(name: str):
    got = bounded_numbers(RANDOM[name])
    assert len({float(each.real.double().mean()) for each in got}) > len(got) // 2


def test_captured_functions_are_no_hindrance():
    # A call in a call, and random keys of both, which follow the call's own.
    inner = assume_pure(lambda x: functional.dropout(x + 0.25, 0.5).cumsum(1))
    bounded_numbers(
        assume_pure(lambda x: torch.rand_like(x) + inner(inner(x) * torch.rand_like(x) * 3))
    )


def test_running_statistics_are_of_the_elements():
    norms = [torch.nn.BatchNorm1d(4), torch.nn.BatchNorm1d(4).to("xla")]
    for n in range(5, 12):
        x = torch.randn(n, 4) + n
        for norm in norms:
            norm(x.to(norm.running_mean.device))
            torch_xla.sync()
    assert metrics.counter_value("BoundedCompile") == 1
    for name, buffer in norms[0].named_buffers():
        torch.testing.assert_close(norms[1].get_buffer(name).cpu(), buffer)


@pytest.mark.parametrize("name", JOINED)
def test_sizes_that_are_joined_are_one_program_up_to_a_bound(name: str):
    assert run(JOINED[name], GROWING) == 3
    assert metrics.counter_value("BoundedRefusal") is None


def test_each_bound_is_a_program():
    assert run(FUNCTIONS["sum"], range(50, 200, 2)) == 5  # 50, and up to 64, 128, 192, 256


def test_sizes_by_leaps_are_bounded_at_the_third():
    assert run(FUNCTIONS["sum"], range(10, 60, 10)) == 4  # 10, 20, and up to 32, 64


def test_what_has_no_rule_is_compiled_for_each_size():
    assert run(lambda x: x.flip(1), range(5, 9)) == 4
    assert metrics.counter_value("BoundedRefusal") == 1
    assert metrics.counter_value("BoundedCompile") is None


def test_classes_that_can_not_be_ignored_are_compiled_for_each_size():
    def loss(x: Tensor) -> Tensor:
        return functional.cross_entropy(x.flatten(0, 1), (classes(x) % 4).to(torch.uint8))

    assert run(loss, range(5, 9)) == 4
    assert metrics.counter_value("BoundedRefusal") == 1


def test_switched_off_each_size_is_a_program():
    with setting(bounded_sizes=False, bounded_growth=False):
        assert run(FUNCTIONS["sum"], range(5, 9)) == 4


def test_sizes_that_grow_are_bounded_by_default():
    torch_xla.settings.bounded_sizes = False
    assert run(FUNCTIONS["sum"], range(5, 45)) == 2
    torch_xla._XLAC._clear_compilation_cache()
    assert run(FUNCTIONS["sum"], range(10, 60, 10)) == 5


def test_much_work_has_small_bounds():
    weights = {device: torch.ones(2048, 2048, device=device) / 2048 for device in ("cpu", "xla")}
    sizes = range(8, 17)  # 8, and up to 12, 16
    assert run(lambda x: x @ weights[x.device.type], sizes, width=2048) == 3


def test_the_same_sizes_again_are_no_growth():
    """Another program for the same sizes, here one that also gives the operand."""
    torch_xla.settings.bounded_sizes = False
    for shape in ((30, 50), (400, 3)):
        x = torch.randn(shape).to("xla")
        torch_xla.sync()
        for _ in range(2):
            total = x.sum(0)
            torch_xla.sync()
            torch.testing.assert_close(total.cpu(), x.cpu().sum(0), rtol=1e-5, atol=1e-5)
        x.sum(0).cpu()
    assert metrics.counter_value("BoundedCompile") is None


def test_a_first_step_with_all_rows_leaves_the_later_ones_bounded():
    """A prompt's step reads all of its tokens, the later ones the last token alone."""

    def prompt(x: Tensor) -> Tensor:
        return x[:, -x.shape[1] :].clone() * 2

    def last(x: Tensor) -> Tensor:
        return x[:, -1:].clone() * 2

    assert run(prompt, range(6, 7)) == 1
    assert run(last, range(7, 20)) == 2
    assert run(prompt, range(9, 10)) <= 1
    assert run(last, range(20, 30)) == 0


@pytest.mark.parametrize(("dynamic", "is_on", "most"), [(True, False, 2), (False, True, 40)])
def test_compiled_functions_say_whether_sizes_are_bounded(dynamic: bool, is_on: bool, most: int):
    with setting(bounded_sizes=is_on, bounded_growth=is_on):
        step = torch_xla.compile(attend, dynamic=dynamic)
        assert run(step, GROWING) == most
        assert run(FUNCTIONS["sum"], range(5, 9)) == (2 if is_on else 4)


def test_results_with_room_are_copied_for_programs_that_want_none():
    x = torch.randn(2, 5, 4).to("xla")
    for _ in range(4):
        x = torch.cat([x, x[:, :1]], dim=1)
        torch_xla.sync(wait=True)
    assert metrics.counter_value("BoundedInputCopies") == 1  # what the first program has made
    flipped = x.flip(1)
    torch_xla.sync(wait=True)
    assert torch.equal(flipped.cpu(), x.cpu().flip(1))
    assert metrics.counter_value("BoundedInputCopies") == 2
    assert torch.equal(x.clone()[:, 2:].cpu(), x.cpu()[:, 2:])


def test_results_with_room_are_written_in_place():
    x = torch.randn(2, 5, 4)
    on_xla = x.to("xla")
    for _ in range(4):
        x = torch.cat([x, x[:, :1]], dim=1)
        on_xla = torch.cat([on_xla, on_xla[:, :1]], dim=1)
        torch_xla.sync()
    for tensor in (x, on_xla):
        tensor[:, -1] = 7
        tensor.add_(1)
    torch_xla.sync()
    assert torch.equal(on_xla.cpu(), x)
    assert torch.equal(torch.from_dlpack(dlpack.to_dlpack(on_xla)), x)
    assert torch.equal(on_xla.to("xla", copy=True).cpu(), x)


def test_growing_cache_takes_two_programs_for_forty_tokens():
    cache, on_xla = torch.randn(1, 2, 6, 8), None
    on_xla = cache.to("xla")
    with counted() as counts:
        for _ in range(40):
            token = torch.randn(1, 2, 1, 8)
            cache = torch.cat([cache, token], dim=2)
            on_xla = torch.cat([on_xla, token.to("xla")], dim=2)
            want = functional.scaled_dot_product_attention(token, cache, cache)
            got = functional.scaled_dot_product_attention(token.to("xla"), on_xla, on_xla)
            torch_xla.sync()
            torch.testing.assert_close(got.cpu(), want, rtol=1e-4, atol=1e-5)
    assert counts.compiled <= 3
    assert torch.equal(on_xla.cpu(), cache)


@pytest.mark.usefixtures("quick_compilation")
def test_operators_give_the_cpus_values():
    failures = size_programs.search_operators(size_programs.operator_programs()[::OPERATOR_STEP])
    assert not failures, "\n" + "\n".join(failures)
    assert size_programs.num_bounded() > 0


@pytest.mark.usefixtures("quick_compilation")
@pytest.mark.parametrize("first", range(0, PROGRAMS, PER_TEST))
def test_random_programs_give_the_cpus_values(first: int):
    failures = size_programs.search(first, PER_TEST)
    assert not failures, "\n" + "\n".join(failures)
    assert size_programs.num_bounded() > 0
