"""After an error that came before anything ran, tensors are what they were, and one can go on."""

from __future__ import annotations

import copy

import pytest
import torch

import torch_xla
from torch_xla._XLAC import _kind_of_data, _last_program_memory
from torch_xla.experimental.stablehlo_custom_call import stablehlo_custom_call

TOO_MUCH = 2**44


def data(batch, device):
    """The same eight rows, so often that they make the batch."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(8, 4, generator=generator).to(device)
    y = torch.randn(8, 2, generator=generator).to(device)
    return x.repeat(batch // 8, 1), y.repeat(batch // 8, 1)


def make_model():
    torch.manual_seed(0)
    # A bias before a batch norm has the gradient 0, of whose rounding RMSprop makes large steps.
    return torch.nn.Sequential(
        torch.nn.Linear(4, 16, bias=False),
        torch.nn.BatchNorm1d(16),
        torch.nn.ReLU(),
        torch.nn.Linear(16, 2),
    )


def step(model, optimizer, batch, device):
    x, y = data(batch, device)
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    return loss


def wait_for_barrier(loss):
    torch_xla.sync(wait=True)


def read_behind_barrier(loss):
    torch_xla.sync()
    loss.item()


def parameters_of(model):
    return [t.cpu() for t in (*model.parameters(), *model.buffers())]


def close(model, reference):
    for a, b in zip(parameters_of(model), parameters_of(reference), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "momentum one by one": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, foreach=False),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01),
}


@pytest.mark.parametrize("seen", [wait_for_barrier, read_behind_barrier])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_batch_is_made_smaller_until_it_fits(name, seen):
    reference = make_model()
    model = copy.deepcopy(reference).to("xla")
    theirs, ours = (OPTIMIZERS[name](m.parameters()) for m in (reference, model))
    for _ in range(2):
        step(reference, theirs, 8, "cpu")
        step(model, ours, 8, "xla")
        torch_xla.sync()
    for _ in range(2):
        step(reference, theirs, 8, "cpu")
        batch, num_failures = TOO_MUCH, 0
        while True:
            try:
                seen(step(model, ours, batch, "xla"))
                break
            except torch.OutOfMemoryError:
                num_failures += 1
            # What lies between would really take all memory.
            batch = batch // 2 if batch > TOO_MUCH // 8 else 8
        torch_xla.sync()
        assert num_failures == 4
        close(model, reference)


def test_first_step_may_fail():
    reference = make_model()
    model = copy.deepcopy(reference).to("xla")
    theirs, ours = (OPTIMIZERS["momentum"](m.parameters()) for m in (reference, model))
    with pytest.raises(torch.OutOfMemoryError):
        wait_for_barrier(step(model, ours, TOO_MUCH, "xla"))
    close(model, reference)
    ours.state.clear()  # made by the step that failed
    for _ in range(2):
        step(reference, theirs, 8, "cpu")
        step(model, ours, 8, "xla")
        torch_xla.sync(wait=True)
    close(model, reference)


def test_step_after_a_failure_reuses_memory_of_parameters():
    model = make_model().to("xla")
    optimizer = OPTIMIZERS["momentum"](model.parameters())
    step(model, optimizer, 8, "xla")
    torch_xla.sync(wait=True)
    step(model, optimizer, 8, "xla")
    torch_xla.sync(wait=True)
    before = _last_program_memory()["alias_size_in_bytes"]
    with pytest.raises(torch.OutOfMemoryError):
        wait_for_barrier(step(model, optimizer, TOO_MUCH, "xla"))
    step(model, optimizer, 8, "xla")
    torch_xla.sync(wait=True)
    assert _last_program_memory()["alias_size_in_bytes"] == before > 0


def test_steps_queued_behind_the_failed_one_are_undone_with_it():
    model = make_model().to("xla")
    optimizer = OPTIMIZERS["sgd"](model.parameters())
    step(model, optimizer, 8, "xla")
    torch_xla.sync()
    before = parameters_of(model)
    losses = []
    for batch in (TOO_MUCH, 8, 8):
        losses.append(step(model, optimizer, batch, "xla"))
        torch_xla.sync()
    for loss in losses:
        with pytest.raises(torch.OutOfMemoryError):
            loss.item()
    for a, b in zip(parameters_of(model), before, strict=True):
        assert torch.equal(a, b)


def test_what_shared_the_program_is_computed_without_what_does_not_fit():
    x = torch.arange(3.0).to("xla")
    torch_xla.sync()
    small = x + 1
    large = torch.rand(TOO_MUCH, device="xla").sum()
    with pytest.raises(torch.OutOfMemoryError, match="computed anew if they are read"):
        torch_xla.sync(wait=True)
    torch_xla.sync(wait=True)
    assert (small * 2).tolist() == [2, 4, 6]
    assert small.tolist() == [1, 2, 3]
    for _ in range(2):
        with pytest.raises(torch.OutOfMemoryError):
            large.item()


def test_what_starts_from_nothing_is_computed_again_too():
    small, large = torch.rand(3, device="xla") + 1, torch.rand(TOO_MUCH, device="xla").sum()
    with pytest.raises(torch.OutOfMemoryError, match="2 results are computed anew"):
        torch_xla.sync(wait=True)
    assert (small >= 1).all()
    del large


def test_views_and_gradients_show_what_was_before():
    w = torch.arange(6.0).to("xla").requires_grad_()
    torch_xla.sync()
    row = w.detach().view(2, 3)[1]
    with torch.no_grad():
        w.add_(torch.rand(TOO_MUCH, device="xla").sum())
    with pytest.raises(torch.OutOfMemoryError):
        torch_xla.sync(wait=True)
    assert row.tolist() == [3, 4, 5]
    row.mul_(2)
    assert w.tolist() == [0, 1, 2, 6, 8, 10]


def refused(x):
    """Recorded, and refused by XLA: nobody has registered that kernel."""
    return stablehlo_custom_call([x], "nobody.knows_this", [list(x.shape)], [x.dtype])


def test_what_cannot_be_compiled_takes_nothing_with_it():
    x = torch.arange(3.0).to("xla")
    w, other = torch.ones(3).to("xla"), torch.zeros(3).to("xla")
    torch_xla.sync()
    y = x * 2
    bad = refused(y)
    beside = y + 1
    unrelated = x.cumsum(0)
    other.add_(x)
    w.add_(bad)
    with pytest.raises(RuntimeError, match="PJRT_Client_Compile"):
        torch_xla.sync()
    assert y.tolist() == [0, 2, 4]
    assert beside.tolist() == [1, 3, 5]
    assert unrelated.tolist() == [0, 1, 3]
    assert other.tolist() == [0, 1, 2]
    assert w.tolist() == [1, 1, 1]
    with pytest.raises(RuntimeError, match="PJRT_Client_Compile"):
        bad.tolist()
    w.add_(other)
    torch_xla.sync(wait=True)
    assert w.tolist() == [1, 2, 3]


def test_read_that_cannot_be_compiled_leaves_all_pending():
    x = torch.arange(3.0).to("xla")
    y = x * 2
    bad = refused(y)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="PJRT_Client_Compile"):
            bad.tolist()
    assert y.tolist() == [0, 2, 4]
    assert _kind_of_data(bad) == "pending"
    del bad
    torch_xla.sync(wait=True)


def test_step_that_cannot_be_compiled_leaves_the_model_as_it_was():
    reference = make_model()
    model = copy.deepcopy(reference).to("xla")
    theirs, ours = (OPTIMIZERS["sgd"](m.parameters()) for m in (reference, model))
    x, y = data(8, "xla")
    ours.zero_grad()
    hidden = model(x)
    (hidden * refused(hidden.detach()) - y).square().mean().backward()
    ours.step()
    with pytest.raises(RuntimeError, match="PJRT_Client_Compile"):
        torch_xla.sync()
    model[1].reset_running_stats()  # the forward pass up to there could be compiled
    step(reference, theirs, 8, "cpu")
    step(model, ours, 8, "xla")
    torch_xla.sync(wait=True)
    close(model, reference)
