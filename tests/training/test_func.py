"""`torch.func`'s transforms and forward-mode derivatives: what they give on the CPU, and without
leaving the device. `tools/conformance --variants "forward mode,vmap"` asks every operator."""

from __future__ import annotations

import copy

import counts
import pytest
import torch
from torch import func, nn
from torch.autograd import forward_ad
from torch.nn import functional

import torch_xla
import torch_xla.debug.metrics as metrics

torch.manual_seed(0)
_MODEL = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.LayerNorm(4), nn.Linear(4, 2))
_IMAGES = nn.Sequential(nn.Conv2d(1, 2, 3), nn.GroupNorm(1, 2), nn.ReLU(), nn.MaxPool2d(2))
_X = torch.rand(5, 3)
_Y = torch.rand(5, 2)


def _loss(parameters, model, x, y):
    return functional.mse_loss(func.functional_call(model, parameters, (x,)), y)


def _parameters(model):
    return {name: p.detach() for name, p in model.named_parameters()}


def _per_sample(model, x, y):
    gradient = func.vmap(func.grad(_loss), in_dims=(None, None, 0, 0))
    return gradient(_parameters(model), model, x, y)


def _per_image(model, x):
    def total(parameters, image):
        return func.functional_call(model, parameters, (image[None],)).square().sum()

    return func.vmap(func.grad(total), in_dims=(None, 0))(_parameters(model), x)


def _ensemble(model, x):
    models = [copy.deepcopy(model) for _ in range(3)]
    with torch.no_grad():
        for i, each in enumerate(models):
            each[0].weight.mul_(i + 1)
    parameters, buffers = func.stack_module_state(models)
    base = copy.deepcopy(model)
    return func.vmap(lambda p, b: func.functional_call(base, (p, b), (x,)))(parameters, buffers)


def _dual(model, x):
    with forward_ad.dual_level():
        result = forward_ad.unpack_dual(model(forward_ad.make_dual(x, x.cos())))
        return result.primal, result.tangent


_CALLS = {
    "functional_call": lambda m, x, y: func.functional_call(m, _parameters(m), (x,)),
    "grad": lambda m, x, y: func.grad(_loss)(_parameters(m), m, x, y),
    "grad of grad": lambda m, x, y: func.grad(
        lambda x: func.grad(lambda x: m(x).exp().sum())(x).square().sum()
    )(x),
    "gradients of each sample": _per_sample,
    "gradients of each image": lambda m, x, y: _per_image(
        _IMAGES.to(x.device), x.sum() + torch.arange(98.0, device=x.device).cos().view(2, 1, 7, 7)
    ),
    "several models at once": lambda m, x, y: _ensemble(m, x),
    "jvp": lambda m, x, y: func.jvp(m, (x,), (x.cos(),)),
    "vjp": lambda m, x, y: func.vjp(m, x)[1](y),
    "linearize": lambda m, x, y: func.linearize(m, x)[1](x.sin()),
    "jacrev": lambda m, x, y: func.jacrev(m)(x[0]),
    "jacfwd": lambda m, x, y: func.jacfwd(m)(x[0]),
    "hessian": lambda m, x, y: func.hessian(lambda x: m(x).prod())(x[0]),
    "dual numbers": lambda m, x, y: _dual(m, x),
    "nested vmap": lambda m, x, y: func.vmap(func.vmap(torch.add, (None, 0)), (0, None))(x, x),
    "functionalize": lambda m, x, y: func.functionalize(lambda x: x.clone().add_(y.sum()))(x),
}


# Both by torch itself.
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
@pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node")
@pytest.mark.parametrize("name", _CALLS)
def test_transform_agrees_with_the_cpu_and_stays_on_the_device(name):
    results = []
    for device in ("cpu", "xla"):
        model = copy.deepcopy(_MODEL).to(device)
        x, y = _X.to(device), _Y.to(device)
        torch_xla.sync()
        metrics.clear_counters()
        made = torch.utils._pytree.tree_leaves(_CALLS[name](model, x, y))
        assert not counts.left_the_device()
        assert metrics.counter_value("DataDependentShape") is None
        results.append(made)
    assert results[0]
    for expected, actual in zip(*results, strict=True):
        torch.testing.assert_close(actual.detach().cpu(), expected.detach(), rtol=1e-4, atol=1e-5)
