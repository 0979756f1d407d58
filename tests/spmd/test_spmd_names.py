"""The names for splitting a tensor over devices, where there is one: annotations are kept, reported
as XLA prints them, and change no value."""

from __future__ import annotations

import pytest
import torch

import torch_xla.distributed.spmd as xs
from torch_xla import _XLAC
from torch_xla.distributed.spmd import debugging

MESH = xs.Mesh([0], (1, 1), ("data", "model"))


@pytest.mark.parametrize(
    ("spec", "kind", "text"),
    [
        ((None, None), xs.ShardingType.REPLICATED, "{replicated}"),
        (("data", None), xs.ShardingType.PARTIAL, "{devices=[1,1]0}"),
        (("data", "model"), xs.ShardingType.TILED, "{devices=[1,1]0}"),
        ((("model", 0), None), xs.ShardingType.TILED, "{devices=[1,1]0}"),
    ],
)
def test_annotation_is_reported(device, spec, kind, text):
    t = torch.randn(2, 3, device=device)
    assert _XLAC._get_xla_sharding_spec(t) == "" and xs.sharding_type(t) is None
    sharded = xs.XLAShardedTensor(t, MESH, spec)
    assert (sharded.sharding_type, sharded.sharding_spec) == (kind, text)
    assert _XLAC._get_xla_sharding_spec(t) == _XLAC._get_xla_sharding_spec(sharded) == text
    assert xs.sharding_of(xs.clear_sharding(sharded)) is None
    assert xs.sharding_text(t) == ""


def test_tiles_of_several_devices_are_printed_as_xla_does(device):
    # A mesh must have as many devices as there are, so its fields are filled by hand.
    mesh = object.__new__(xs.Mesh)
    mesh.device_ids, mesh.mesh_shape, mesh.axis_names = MESH.device_ids, (2, 2), ("a", "b")
    mesh.device_ids = torch.arange(4).numpy()
    t = torch.ones(4, 4, device=device)
    for spec, text in (
        (("b", "a"), "{devices=[2,2]0,2,1,3}"),
        (("b", None), "{devices=[2,1,2]0,2,1,3 last_tile_dim_replicate}"),
        ((("a", "b"), None), "{devices=[4,1]0,1,2,3}"),
    ):
        assert xs.ShardingSpec(mesh, spec).xla_spec(t) == text
    with pytest.raises(ValueError, match=r"mark_sharding: .* expected a mesh of all 1 devices"):
        xs.mark_sharding(t, mesh, ("a", "b"))
    with pytest.raises(
        ValueError, match=r"enable_manual_sharding: .* expected a mesh of all 1 devices"
    ):
        xs.enable_manual_sharding(t, ("a", None), mesh=mesh)


def test_marked_tensor_is_the_tensor_with_its_sharding(device):
    x = torch.arange(4.0, device=device).reshape(2, 2).requires_grad_()
    y = x * 2
    marked = xs.mark_sharding(y, MESH, ("data", None))
    assert isinstance(marked, xs.XLAShardedTensor) and marked.partition_spec == ("data", None)
    with pytest.raises(ValueError, match=r"lies by \('data', None\) .* clear_sharding"):
        xs.mark_sharding(marked, MESH, ("data", "model"))
    assert xs.annotate_custom_sharding(marked, MESH, ("data", "model")) is marked
    assert xs.sharding_of(y).partition_spec == ("data", "model")
    assert xs.wrap_if_sharded(y).global_tensor is y and xs.wrap_if_sharded(x) is x
    assert marked.detach().sharding_spec == marked.sharding_spec
    # Gradients and writes reach what was marked, also where __torch_function__ is not asked.
    (marked.square().sum() + xs.XLAPatchedLinear.apply(marked, torch.eye(2, device=device)).sum()
     ).backward()  # fmt: skip
    assert x.grad.tolist() == [[2, 10], [18, 26]]
    with torch.no_grad():
        assert marked.add_(1) is marked
    assert y.tolist() == marked.tolist() == [[1, 3], [5, 7]]


def test_marked_tensor_can_be_a_parameter(device):
    layer = torch.nn.Linear(2, 1, bias=False).to(device)
    weight = xs.mark_sharding(torch.ones(1, 2, device=device), MESH, (None, "model"))
    layer.weight = torch.nn.Parameter(weight)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.5)
    layer(torch.ones(1, 2, device=device)).sum().backward()
    optimizer.step()
    assert layer.weight.tolist() == [[0.5, 0.5]]
    assert layer.weight.sharding_spec == "{devices=[1,1]0}"
    assert layer.state_dict()["weight"].tolist() == [[0.5, 0.5]]
    with pytest.warns(UserWarning, match="XLAShardedTensor"):
        layer.cpu()
    assert type(layer.weight) is torch.nn.Parameter and layer.weight.tolist() == [[0.5, 0.5]]


def test_annotation_can_be_replaced_and_shared(device):
    a, b = torch.ones(2, 2, device=device), torch.ones(2, 2, device=device)
    assert xs.shard_as(a, b) == (a, b) and xs.sharding_of(a) is None
    xs.mark_sharding(a, MESH, ("data", None))
    again = xs.annotate_custom_sharding(a, MESH, (None, "data"))
    assert isinstance(again, xs.XLAShardedTensor) and again.global_tensor is a
    xs.shard_as(a, b)
    assert xs.sharding_of(b).partition_spec == (None, "data")
    with pytest.raises(ValueError, match="shard_as: expected tensors of one shape"):
        xs.shard_as(a, torch.ones(3, device=device))
    with pytest.raises(ValueError, match=r"annotate_custom_sharding: .* expected an entry"):
        xs.annotate_custom_sharding(a, MESH, (None,))
    with pytest.raises(ValueError, match="expected an xla tensor, got one on cpu"):
        xs.annotate_custom_sharding(torch.ones(1), MESH, (None,))


def test_manual_code_sees_the_whole_tensor_and_has_gradients(device):
    x = torch.randn(4, 2, device=device, requires_grad=True)
    part = xs.enable_manual_sharding(x, ("data", None), mesh=MESH)
    assert part.sharding_type == xs.ShardingType.MANUAL and part.sharding_spec == "{manual}"
    assert xs.sharding_of(x) is None
    xs.set_global_mesh(MESH)
    out = xs.disable_manual_sharding(part.global_tensor * 2, ("data", None), (4, 2)).global_tensor
    assert xs.sharding_text(out) == "{devices=[1,1]0}"
    out.square().sum().backward()
    torch.testing.assert_close(out.detach().cpu(), x.detach().cpu() * 2)
    torch.testing.assert_close(x.grad.cpu(), x.detach().cpu() * 8)
    with pytest.raises(ValueError, match=r"expected \(8, 2\), .* got \(4, 2\)"):
        xs.disable_manual_sharding(out, ("data", None), (8, 2))


def test_automatic_policy_splits_the_largest_dimension(device):
    class DeviceMesh:
        device_type, mesh, mesh_dim_names = "xla", torch.tensor([0]), ("data",)

    module = xs.xla_distribute_module(torch.nn.Linear(2, 1), DeviceMesh(), xs.auto_policy)
    assert xs.sharding_of(module.weight).partition_spec == (None, (0,))
    assert xs.sharding_of(module.bias).partition_spec == ((0,),)
    assert module(torch.ones(1, 2, device=device)).shape == (1, 1)


@pytest.mark.parametrize("backend", [None, "openxla"])
def test_annotation_inside_of_a_compiled_function(device, backend):
    torch.compiler.reset()

    def f(x):
        y = torch.ops.xla.dynamo_mark_sharding(
            x * 2, [0], [1, 1], "('data', 'model')", "('data', None)"
        )
        return y + 1

    x = torch.randn(2, 3, device=device, requires_grad=True)
    y = (torch.compile(f, backend=backend, fullgraph=True) if backend else f)(x)
    y.sum().backward()
    torch.testing.assert_close(y.detach().cpu(), x.detach().cpu() * 2 + 1)
    assert x.grad.cpu().unique().tolist() == [2]


def test_annotation_by_an_operator_is_kept_and_checked(device):
    x = torch.ones(2, 3, device=device)
    mark = torch.ops.xla.dynamo_mark_sharding
    assert xs.sharding_of(mark(x, [0], [1], "", "(0, None)")).partition_spec == (0, None)
    for names, spec in (("('a',)", "('b', None)"), ("(", "(None, None)"), ("('a',)", "(None,)")):
        with pytest.raises(ValueError, match=r"mark_sharding|ShardingSpec"):
            mark(x, [0], [1], names, spec)


def test_drawing_of_a_sharding(capsys, device):
    t = xs.mark_sharding(torch.ones(2, 2, device=device), MESH, ("data", None))
    text = debugging.visualize_tensor_sharding(t, use_color=False)
    kind = torch_xla_kind()
    assert capsys.readouterr().out == text + "\n"
    assert text.splitlines()[2].strip("|").strip() == f"{kind} 0"
    text = debugging.visualize_sharding(
        "{devices=[2,1,2]0,2,1,3 last_tile_dim_replicate}", use_color=False, min_width=9
    )
    assert [line for line in text.splitlines() if kind in line] == [
        "|" + f"{kind} 0,2".center(9) + "|", "|" + f"{kind} 1,3".center(9) + "|"
    ]  # fmt: skip
    wide = debugging.visualize_sharding("{devices=[4]0,1,2,3}", use_color=False, max_width=30)
    assert max(map(len, wide.splitlines())) <= 30
    assert "\x1b[" in debugging.visualize_sharding("{maximal device=0}")
    for bad in ("{devices=[2]0,1,2}", "{devices=[2,2,2]0,1,2,3,4,5,6,7}", "tiles"):
        with pytest.raises(ValueError, match="visualize_sharding"):
            debugging.visualize_sharding(bad)


def torch_xla_kind() -> str:
    import torch_xla.runtime as xr

    return xr.device_type()
