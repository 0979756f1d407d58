"""`torch.export` to StableHLO: what it computes, its files, what they hold against, composites."""

from __future__ import annotations

import json
import warnings

import pytest
import torch
from counts import counted
from processes import run_in_process
from torch import nn

import torch_xla
import torch_xla.core.xla_model as xm
from torch_xla.experimental import xla_marker
from torch_xla.experimental.mark_pattern_utils import StableHLOCompositeBuilder
from torch_xla.experimental.stablehlo_custom_call import (
    place_to_device,
    place_to_host,
    stablehlo_custom_call,
)
from torch_xla.experimental.xla_mlir_debuginfo import write_mlir_debuginfo
from torch_xla.stablehlo import (
    StableHLOExportOptions,
    StableHLOGraphModule,
    VariableType,
    exported_program_to_stablehlo,
    save_as_stablehlo,
    save_torch_model_as_stablehlo,
)


def make_model():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(0.5),
        nn.Linear(4, 2),
    ).eval()


EXAMPLE = (torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1)),)


def export(function, *args, **kwargs):
    class Module(nn.Module):
        def forward(self, *args, **kwargs):
            return function(*args, **kwargs)

    return exported_program_to_stablehlo(torch.export.export(Module(), args, kwargs))


def check(module, model, *args):
    torch.testing.assert_close(module(*args).cpu(), model(*args), rtol=1e-4, atol=1e-5)


def parse(text: str):
    """The module as jaxlib's own parser reads and verifies it."""
    pytest.importorskip("jaxlib.mlir.ir")
    from torch_xla._mlir import parse as parse_text

    module = parse_text(text)
    assert module.operation.verify()
    return module


def test_model_computes_the_same(device):
    model = make_model()
    module = exported_program_to_stablehlo(torch.export.export(model, EXAMPLE))
    check(module, model, *EXAMPLE)
    check(module, model, EXAMPLE[0] * 2)
    with counted() as counts:
        result = module(EXAMPLE[0] * 3)
    assert result.device == device and counts.compiled == 0 and counts.executed == 1


def test_program_stands_for_itself(device):
    module = exported_program_to_stablehlo(torch.export.export(make_model(), EXAMPLE))
    text = module.get_stablehlo_text()
    assert "custom_call" not in text and "aliasing" not in text
    locations = module._bundle.stablehlo_funcs[0].meta.input_locations
    names = [where.name for where in locations if where.type_ is VariableType.PARAMETER]
    assert names[:2] == ["0.weight", "0.bias"]
    assert [where.position for where in locations if where.type_ is VariableType.INPUT_ARG] == [0]


def test_jaxlib_reads_the_text(device):
    module = exported_program_to_stablehlo(torch.export.export(make_model(), EXAMPLE))
    parse(module.get_stablehlo_text())
    x = torch.rand(3, 4, device=device)
    with_numbers = (x * 0.3 + x.erf()).softmax(-1) @ x.t() + torch.rand(3, 3, device=device)
    parse(xm.get_stablehlo([with_numbers]))
    torch_xla.settings.hlo_debug = True
    try:
        parse(xm.get_stablehlo([with_numbers.sort(0).values[1:2].cumsum(0)]))
    finally:
        torch_xla.settings.hlo_debug = False


def test_bytecode_is_an_artifact_that_jaxlib_reads(device):
    pytest.importorskip("jaxlib.mlir.ir")
    from torch_xla._mlir import to_text

    module = export(lambda x: x * 2 + 1, torch.ones(3))
    bytecode = module.get_stablehlo_bytecode()
    assert bytecode.startswith(b"ML\xefR")
    parse(to_text(bytecode))
    assert xm.get_stablehlo_bytecode([torch.ones(2, device=device) + 1]).startswith(b"ML\xefR")
    # CHLO is not part of the format: the text, which parsers take too.
    assert xm.get_stablehlo_bytecode([torch.ones(2, device=device).erf()]).startswith(b"module")


def test_text_of_what_is_pending(device):
    x = torch.ones(2, 3).to(device)
    y = x.sin()
    with counted() as counts:
        z = y.cos()
        assert xm.get_stablehlo([z]).count("stablehlo.cos") == 1
        assert "stablehlo.cos" in xm.get_stablehlo()
    assert counts.executed == 0 and y.shape == z.shape


def test_files(device, tmp_path):
    model = make_model()
    save_as_stablehlo(torch.export.export(model, EXAMPLE), tmp_path / "saved")
    files = {str(p.relative_to(tmp_path / "saved")) for p in (tmp_path / "saved").rglob("*.*")}
    assert {"functions/forward.mlir", "functions/forward.bytecode"} <= files
    assert {"functions/forward.meta", "data/0.weight", "data/1.running_mean"} <= files
    module = StableHLOGraphModule.load(tmp_path / "saved")
    check(module, model, *EXAMPLE)
    module.save(tmp_path / "again")
    check(StableHLOGraphModule.load(tmp_path / "again"), model, *EXAMPLE)


def test_fresh_process_runs_the_files(tmp_path):
    model = make_model()
    save_torch_model_as_stablehlo(model, EXAMPLE, tmp_path / "saved")
    torch.save((EXAMPLE[0], model(*EXAMPLE)), tmp_path / "io.pt")
    code = f"""
        import torch, torch_xla
        from torch_xla.stablehlo import StableHLOGraphModule
        x, y = torch.load({str(tmp_path / "io.pt")!r})
        module = StableHLOGraphModule.load({str(tmp_path / "saved")!r})
        print((module(x).cpu() - y).abs().max().item() < 1e-5)
        """
    assert run_in_process(code) == "True"


def test_weights_can_stay_out(device, tmp_path):
    exported = torch.export.export(make_model(), EXAMPLE)
    save_as_stablehlo(exported, tmp_path, StableHLOExportOptions(save_weights=False))
    assert list((tmp_path / "data").iterdir()) == []
    with pytest.raises(ValueError, match=r"the weight '0\.weight' was not saved"):
        StableHLOGraphModule.load(tmp_path)(*EXAMPLE)


def test_names_of_nodes_can_be_kept(device):
    exported = torch.export.export(make_model(), EXAMPLE)
    options = StableHLOExportOptions(export_node_metadata=True)
    text = exported_program_to_stablehlo(exported, options).get_stablehlo_text()
    assert 'loc("relu/aten::relu' in text
    parse(text)
    assert "loc(" not in exported_program_to_stablehlo(exported).get_stablehlo_text()


def test_other_arguments_can_be_recorded(device):
    options = StableHLOExportOptions(override_tracing_arguments=(torch.randn(5, 3, 8, 8),))
    batch = {0: torch.export.Dim("batch", min=2, max=9)}
    exported = torch.export.export(make_model(), EXAMPLE, dynamic_shapes=[batch])
    module = exported_program_to_stablehlo(exported, options)
    check(module, make_model(), torch.randn(5, 3, 8, 8))


def test_structures_of_arguments_and_results(device):
    def function(x, pair, *, scale):
        return {"sum": x + pair[0], "list": [pair[1] * scale, 3]}

    a, b, c, scale = torch.ones(2), torch.full((2,), 2.0), torch.full((2,), 3.0), torch.tensor(4.0)
    module = export(function, a, (b, c), scale=scale)
    result = module(a, (b, c), scale=scale)
    assert result["sum"].tolist() == [3, 3] and result["list"][0].tolist() == [12, 12]
    assert result["list"][1] == 3
    with pytest.raises(ValueError, match="another structure"):
        module(a, [b, c], scale=scale)


def test_wrong_arguments_are_errors(device):
    module = export(lambda x, y: x + y, torch.ones(3), torch.ones(3))
    with pytest.raises(ValueError, match="takes 2 tensors, got 1"):
        module.evaluate([torch.ones(3)])
    with pytest.raises(ValueError, match=r"argument 1 must be float32\[3\], got float32\[4\]"):
        module.evaluate([torch.ones(3), torch.ones(4)])
    with pytest.raises(ValueError, match="there is no method 'backward', there are forward"):
        module.get_stablehlo_text("backward")


def test_writes_of_the_program_stay_inside(device):
    def function(x):
        x.add_(1)
        return x * 2

    x = torch.ones(3)
    module = export(function, x.clone())
    assert module(x).tolist() == module(x).tolist() == [4, 4, 4]


def test_constants_and_factories(device):
    table = torch.arange(3.0)
    module = export(lambda x: x * table + torch.ones(3) + torch.zeros_like(x), torch.ones(3))
    assert module(torch.ones(3)).tolist() == [1, 2, 3]


def test_what_has_no_lowering_or_reads_values_is_an_error(device):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(RuntimeError, match="export: aten::_compute_linear_combination has no"):
            export(torch._compute_linear_combination, torch.ones(2, 3), torch.ones(4, 2))
        with pytest.raises(NotImplementedError, match="_linalg_eigvals is a call of PyTorch's own"):
            export(lambda x: torch.linalg.eigvals(x), torch.eye(3) + 1)


def test_numbers_are_constants(device):
    module = export(lambda x: (x * 0.25)[1:2] + 7, torch.ones(3))
    assert "0.25" in module.get_stablehlo_text() or "2.5" in module.get_stablehlo_text()
    assert module(torch.ones(3)).tolist() == [7.25]


@pytest.mark.parametrize("damage", ["meta", "mlir", "weight", "no meta", "escape"])
def test_damaged_folders_are_clear_errors(device, tmp_path, damage):
    save_as_stablehlo(torch.export.export(make_model(), EXAMPLE), tmp_path)
    meta = tmp_path / "functions" / "forward.meta"
    if damage == "meta":
        meta.write_text(meta.read_text()[:100])
    elif damage == "mlir":
        (tmp_path / "functions" / "forward.mlir").write_text("import os; os.abort()")
    elif damage == "weight":
        (tmp_path / "data" / "0.weight").write_bytes(b"\x93NUMPY")
    elif damage == "no meta":
        meta.unlink()
    else:
        fields = json.loads(meta.read_text())
        fields["input_locations"][0]["name"] = "../../../etc/passwd"
        meta.write_text(json.dumps(fields))
    with pytest.raises((ValueError, FileNotFoundError, RuntimeError)) as caught:
        StableHLOGraphModule.load(tmp_path)(*EXAMPLE)
    assert str(caught.value)


def test_pickled_weights_are_refused(device, tmp_path):
    import numpy as np

    save_as_stablehlo(torch.export.export(make_model(), EXAMPLE), tmp_path)
    with (tmp_path / "data" / "0.weight").open("wb") as file:
        np.save(file, np.array([print], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="damaged"):
        StableHLOGraphModule.load(tmp_path)


def test_bfloat16_weights(device, tmp_path):
    model = nn.Linear(3, 2).bfloat16()
    x = torch.ones(1, 3, dtype=torch.bfloat16)
    save_torch_model_as_stablehlo(model, (x,), tmp_path)
    result = StableHLOGraphModule.load(tmp_path)(x)
    torch.testing.assert_close(result.cpu(), model(x), rtol=2e-2, atol=2e-2)


def test_custom_call_is_in_the_program(device):
    x = torch.ones(2, 3, device=device)
    y, z = stablehlo_custom_call(
        [x, x], "vendor.norm", [[2], [2, 3]], [torch.float32, torch.bool], backend_config="eps"
    )
    assert y.shape == (2,) and z.shape == (2, 3) and z.dtype == torch.bool
    text = xm.get_stablehlo([y, z])
    assert 'call_target_name = "vendor.norm"' in text and '"eps"' in text
    parse(text)
    placed = stablehlo_custom_call(
        [x], "place", [[2, 3]], [torch.float32], frontend_attributes={"a.b": 'c "d" = e', "f": ""}
    )
    text = xm.get_stablehlo([placed])
    assert 'mhlo.frontend_attributes = {"a.b" = "c \\22d\\22 = e", "f" = ""}' in text
    parse(text)
    with pytest.raises(TypeError, match="frontend attribute 'a' must be a text, got 1"):
        stablehlo_custom_call([x], "p", [[2]], [torch.float32], frontend_attributes={"a": 1})
    with pytest.raises(ValueError, match="2 shapes and 1 dtypes"):
        stablehlo_custom_call([x], "vendor.norm", [[2], [2]], [torch.float32])
    del y, z, placed


def test_values_that_wait_in_the_hosts_memory(device, monkeypatch):
    def program(x):
        waiting = place_to_host(x.sin())
        return waiting, (place_to_device(waiting) * x).sum()

    x = torch.ones(2, 3, device=device, requires_grad=True)
    program(x)[1].backward()
    assert "annotate_device_placement" not in xm.get_stablehlo([x.grad])
    want = x.grad.cpu()
    torch.testing.assert_close(want, x.detach().cpu().cos() + x.detach().cpu().sin())
    # The plugin of the CPU has one memory; what others are told is in the text.
    monkeypatch.setattr(torch_xla._XLAC, "_platform", lambda: "cuda")
    waiting, loss = program(x)
    (grad,) = torch.autograd.grad(loss, x)
    text = xm.get_stablehlo([loss, grad])
    assert text.count('call_target_name = "annotate_device_placement"') == 2
    assert text.count('{"_xla_buffer_placement" = "pinned_host"}') == 1
    assert text.count('{"_xla_buffer_placement" = "device"}') == 1
    assert text.count("has_side_effect = true") == 2
    parse(text)
    with pytest.raises(TypeError, match="place_to_host: expected an XLA tensor, got one on cpu"):
        place_to_host(torch.ones(2))
    del waiting, loss, grad  # what the CPU's plugin can't compile


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.full((4,), 3.0))

    def forward(self, x, y):
        builder = StableHLOCompositeBuilder("vendor.scaled", {"eps": 0.5, "axis": 1, "name": "n"})
        a, b = builder.mark_inputs(x + 1, y)
        total, difference = builder.mark_outputs((a + b) * self.weight, a - b)
        return total.sum() + difference, total


def test_composite_is_one_operation(device):
    model = Scaled()
    x, y = torch.arange(4.0), torch.ones(4)
    module = exported_program_to_stablehlo(torch.export.export(model, (x, y)))
    text = module.get_stablehlo_text()
    assert text.count('"stablehlo.composite"') == 1
    assert 'name = "vendor.scaled"' in text and '"eps" = ' in text and '"axis" = 1 : i64' in text
    main = text[: text.index("func.func private")]
    assert "stablehlo.multiply" not in main and "stablehlo.subtract" not in main
    parse(text)
    for got, expected in zip(module(x, y), model(x, y), strict=True):
        torch.testing.assert_close(got.cpu(), expected)


def test_marks_are_nothing_elsewhere(device):
    model = Scaled()
    x, y = torch.arange(4.0), torch.ones(4)
    with torch.no_grad():
        expected = model(x, y)
        got = model.to(device)(x.to(device), y.to(device))
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a.cpu(), b)
    with pytest.raises(ValueError, match=r"vendor\.op"):
        StableHLOCompositeBuilder("scaled")
    with pytest.raises(ValueError, match="'bad' must be a number"):
        StableHLOCompositeBuilder("vendor.op", {"bad": [1]})


@pytest.mark.parametrize("attr", [{"eps": 0.5}, xla_marker.serialize_composite_attr({"eps": 0.5})])
def test_composite_written_by_hand(device, attr):
    mark = torch.ops.xla.mark_tensor

    class ByHand(nn.Module):
        def forward(self, x):
            x = mark(x, name="vendor.double", pos=0, id="0", is_input=True)
            return mark(x * 2, "vendor.double", 0, "0", False, attr) + 1

    x = torch.arange(3.0)
    module = exported_program_to_stablehlo(torch.export.export(ByHand(), (x,)))
    text = module.get_stablehlo_text()
    assert text.count('"stablehlo.composite"') == 1
    assert 'name = "vendor.double"' in text and '"eps" = ' in text
    parse(text)
    for got in (module(x).cpu(), ByHand()(x), ByHand()(x.to(device)).cpu()):
        assert got.tolist() == [1, 3, 5]
    with pytest.raises(ValueError, match=r"vendor\.op"):
        mark(x, "double", 0, "0", True)


def test_random_programs_are_exported_with_their_key(device):
    module = export(lambda x: torch.nn.functional.dropout(x, 0.5, training=True), torch.ones(100))
    first, second = module(torch.ones(100)), module(torch.ones(100))
    assert torch.equal(first.cpu(), second.cpu()) and set(first.tolist()) == {0.0, 2.0}


def test_arguments_of_the_export_are_checked():
    program = torch.export.export(nn.Linear(2, 1), (torch.ones(1, 2),))
    with pytest.raises(TypeError, match=r"expected what torch\.export\.export returns, got Linear"):
        exported_program_to_stablehlo(nn.Linear(2, 1))
    with pytest.raises(TypeError, match="expected StableHLOExportOptions, got dict"):
        exported_program_to_stablehlo(program, {"save_weights": False})
    module = exported_program_to_stablehlo(program)
    inputs = (torch.ones(1, 2),)
    want = module.evaluate(inputs)[0].cpu()
    assert torch.equal(module.evaluate("forward", inputs)[0].cpu(), want)
    assert torch.equal(module.evaluate(inputs, "forward")[0].cpu(), want)
    with pytest.raises(ValueError, match="there is no method 'backward'"):
        module.evaluate("backward", inputs)
    with pytest.raises(TypeError, match="expected tensors and the name of a method"):
        module.evaluate(inputs, inputs)


def test_names_of_ones_own_are_in_the_metadata(device):
    class Named(nn.Module):
        def forward(self, x):
            return write_mlir_debuginfo(x * 2, 'my "name"').sin()

    x = torch.randn(3, requires_grad=True)
    exported = torch.export.export(Named(), (x,))
    for has_metadata in (False, True):
        options = StableHLOExportOptions(export_node_metadata=has_metadata)
        module = exported_program_to_stablehlo(exported, options)
        named = [line for line in module.get_stablehlo_text().splitlines() if "my " in line]
        assert any("stablehlo.multiply" in line for line in named) == has_metadata
        parse(module.get_stablehlo_text())
        torch.testing.assert_close(module(x).cpu(), (x * 2).sin().detach())
    y = x.detach().to(device).requires_grad_()
    Named()(y).sum().backward()
    torch.testing.assert_close(y.grad.cpu(), (x * 2).cos().detach() * 2)


def test_dynamic_sizes_become_those_of_the_example_with_a_warning(device):
    model, x = nn.Linear(3, 2), torch.randn(4, 3)
    exported = torch.export.export(model, (x,), dynamic_shapes=({0: torch.export.Dim("b")},))
    with pytest.warns(UserWarning, match=r"the dynamic sizes input\[0\] become constants") as found:
        module = exported_program_to_stablehlo(exported)
    assert found[0].filename == __file__
    torch.testing.assert_close(module(x).cpu(), model(x).detach())
    with pytest.raises(ValueError, match=r"must be float32\[4, 3\], got float32\[5, 3\]"):
        module(torch.randn(5, 3))
