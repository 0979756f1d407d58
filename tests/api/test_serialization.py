"""`torch.save`, `torch.load`, `xm.save`, copies and pickles."""

from __future__ import annotations

import copy
import io
import pickle

import pytest
import torch
from processes import run_in_process
from torch import nn

import torch_xla
import torch_xla.core.xla_model as xm
from torch_xla.utils import serialization as xser

DTYPES = [
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64),
]


def save_and_load(data, save=torch.save, **how):
    buffer = io.BytesIO()
    save(data, buffer)
    buffer.seek(0)
    return torch.load(buffer, **how)


@pytest.mark.parametrize("dtype", DTYPES)
def test_tensors_come_back_where_they_were(device, dtype):
    tensor = torch.arange(6, device=device).to(dtype).reshape(2, 3)
    loaded = save_and_load(tensor)
    assert loaded.device == device and loaded.dtype == dtype
    assert torch.equal(loaded.cpu(), tensor.cpu())


@pytest.mark.parametrize("location", ["cpu", "xla", "xla:0", torch.device("xla")])
@pytest.mark.parametrize("source", ["cpu", "xla"])
def test_map_location(location, source):
    data = {"a": torch.ones(2, device=source), "b": [torch.zeros((), device=source)]}
    loaded = save_and_load(data, map_location=location)
    assert loaded["a"].device.type == torch.device(location).type
    assert loaded["a"].tolist() == [1, 1] and loaded["b"][0].item() == 0


def test_map_location_as_a_dictionary_or_function(device):
    tensor = torch.ones(2)
    assert save_and_load(tensor, map_location={"cpu": "xla:0"}).device == device
    for source in (tensor, tensor.to(device)):
        loaded = save_and_load(source, map_location=lambda storage, location: storage)
        assert loaded.device.type == "cpu" and loaded.tolist() == [1, 1]
    loaded = save_and_load(tensor.to(device), map_location=lambda storage, location: None)
    assert loaded.device == device


@pytest.mark.parametrize("location", [None, "cpu", "xla"])
@pytest.mark.parametrize("source", ["cpu", "xla"])
def test_files_whose_values_come_last(device, source, location):
    whole = torch.arange(12.0)
    data = {"whole": whole.to(source), "param": nn.Parameter(torch.tensor([1.5], device=source))}
    if source == "cpu":
        data["part"] = data["whole"][3:9].view(2, 3).t()
    buffer = io.BytesIO()
    torch.save(data, buffer, _use_new_zipfile_serialization=False)
    buffer.seek(0)
    loaded = torch.load(buffer, map_location=location)
    assert {tensor.device.type for tensor in loaded.values()} == {location or source}
    assert loaded["whole"].tolist() == whole.tolist()
    assert loaded["param"].tolist() == [1.5] and loaded["param"].requires_grad
    if source == "cpu":
        loaded["whole"] += 1
        assert loaded["part"].tolist() == (whole + 1)[3:9].view(2, 3).t().tolist()


def test_missing_device_is_an_error_at_the_load():
    with pytest.raises(RuntimeError, match="device index 99 does not exist"):
        save_and_load(torch.ones(2), map_location="xla:99")


def test_tensors_of_one_storage_share_memory_after_the_load(device):
    base = torch.arange(6.0)
    loaded = save_and_load([base, base[1:3], base.view(2, 3).t(), base], map_location=device)
    loaded[0].add_(1)
    assert loaded[1].tolist() == [2, 3]
    assert loaded[2].tolist() == [[1, 4], [2, 5], [3, 6]]
    loaded[3].zero_()
    assert loaded[1].tolist() == [0, 0]
    part, whole = save_and_load([base[2:4], base], map_location=device)
    whole[2] = 7
    assert part.tolist() == [7, 3]


def test_strides_survive(device):
    image = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    loaded = save_and_load(image, map_location=device)
    assert loaded.stride() == image.stride()
    assert torch.equal(loaded.cpu(), image)


def test_requires_grad_survives(device):
    tensor = torch.ones(2, device=device, requires_grad=True)
    loaded = save_and_load(tensor)
    assert loaded.requires_grad and loaded.is_leaf
    parameter = save_and_load(nn.Parameter(tensor.detach()))
    assert isinstance(parameter, nn.Parameter) and parameter.device == device


def test_whole_training_state(device):
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(5, 3, device=device)).sum().backward()
    optimizer.step()
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    for save in (torch.save, xm.save):
        loaded = save_and_load(state, save)
        other = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)).to(device)
        other.load_state_dict(loaded["model"])
        other_optimizer = torch.optim.AdamW(other.parameters())
        other_optimizer.load_state_dict(loaded["optimizer"])
        for a, b in zip(model.parameters(), other.parameters(), strict=True):
            assert torch.equal(a.cpu(), b.cpu())
        moments = [s["exp_avg"] for s in other_optimizer.state.values()]
        assert {moment.device for moment in moments} == {device}


def test_xm_save_writes_cpu_tensors_and_leaves_the_data_alone(device):
    tied = nn.Parameter(torch.ones(2, device=device))
    data = {"a": tied, "again": tied, "list": [torch.zeros(1, device=device)], "text": "x"}
    loaded = save_and_load(data, xm.save)
    assert loaded["a"] is loaded["again"] and isinstance(loaded["a"], nn.Parameter)
    assert loaded["a"].device.type == loaded["list"][0].device.type == "cpu"
    assert loaded["text"] == "x"
    assert data["a"] is tied and data["list"][0].device == device


def test_xm_save_of_a_module(device):
    model = nn.Linear(2, 2).to(device)
    loaded = save_and_load(model, xm.save, weights_only=False)
    assert loaded.weight.device.type == "cpu" and model.weight.device == device
    assert torch.equal(loaded.weight, model.weight.cpu())


def test_xm_save_keeps_the_kinds_of_containers(device):
    state = nn.BatchNorm1d(2).to(device).state_dict()
    loaded = save_and_load(state, xm.save)
    assert type(loaded) is type(state) and loaded._metadata == state._metadata


def test_pickle(device):
    tensor = torch.arange(3, device=device)
    loaded = pickle.loads(pickle.dumps(tensor))
    assert loaded.device == device and loaded.tolist() == [0, 1, 2]


@pytest.mark.parametrize("copy_tensor", [copy.copy, copy.deepcopy])
@pytest.mark.parametrize("requires_grad", [False, True])
def test_copies_are_deep(device, copy_tensor, requires_grad):
    tensor = torch.zeros(2, device=device, requires_grad=requires_grad)
    copied = copy_tensor(tensor)
    assert copied.device == device and copied.requires_grad == requires_grad
    with torch.no_grad():
        copied.add_(1)
    assert tensor.tolist() == [0, 0] and copied.tolist() == [1, 1]


def test_storages_are_refused_with_a_reason(device):
    storage = torch.ones(2, device=device).untyped_storage()
    for arguments in [(storage, 0, (2,), (1,)), (storage,)]:
        with pytest.raises(NotImplementedError, match="no storage"):
            torch.zeros(2, device=device).set_(*arguments)
    for read in [repr, list, lambda storage: storage[0]]:
        with pytest.raises(NotImplementedError, match="no storage"):
            read(storage)


def test_a_loaded_storage_is_taken_whole(device):
    values = torch.UntypedStorage(torch.arange(6.0).view(torch.uint8).tolist())
    storage = torch.serialization._get_restore_location(device)(values, "cpu")
    taken = torch.zeros(2, device=device).set_(storage)
    assert taken.device == device and taken.tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("save", [torch.save, xm.save])
def test_a_tensor_and_its_view_are_refused_together(device, save):
    tensor = torch.randn(2, 2, device=device)
    with pytest.raises(RuntimeError, match="Tensor ID 2 is sharing a view with tensor ID 1"):
        save((tensor, tensor[0:1]), io.BytesIO())
    on_cpu = tensor.cpu()
    whole, part = save_and_load((on_cpu, on_cpu[0:1]), save)
    part.zero_()
    assert whole[0].tolist() == [0, 0]
    assert save_and_load(tensor[0:1], save).shape == (1, 2)


def test_weights_only_load_of_xla_tensors(device):
    loaded = save_and_load({"w": torch.ones(2, device=device)}, weights_only=True)
    assert loaded["w"].device == device


class Bomb:
    def __reduce__(self):
        return (exec, ("raise AssertionError('code ran')",))


def test_failed_writer_leaves_the_old_file(device, tmp_path, monkeypatch):
    path = tmp_path / "model.pt"
    xm.save({"w": torch.ones(2, device=device)}, path)
    before = path.read_bytes()

    def fail(data, file):
        file.write(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(torch, "save", fail)
    with pytest.raises(OSError, match="disk full"):
        xm.save({"w": torch.zeros(2, device=device)}, str(path))
    assert path.read_bytes() == before and [p.name for p in tmp_path.iterdir()] == ["model.pt"]


def test_killed_writer_leaves_the_old_checkpoint(tmp_path):
    path = tmp_path / "model"
    for save, load in (("xm", torch.load), ("xser", xser.load)):
        (xm.save if save == "xm" else xser.save)({"a": torch.ones(3), "b": torch.ones(3)}, path)
        kill = f"""
            import os, torch, torch_xla
            import torch_xla.core.xla_model as xm
            from torch_xla.utils import serialization as xser
            count = 0
            original = torch.save
            def save(*args, **kwargs):
                global count
                count += 1
                original(*args, **kwargs)
                if count == (1 if {save == "xm"} else 2):
                    os._exit(0)
            torch.save = save
            {save}.save({{"a": torch.zeros(3), "b": torch.zeros(3)}}, {str(path)!r})
            raise AssertionError("was not killed")
            """
        run_in_process(kill)
        loaded = load(path)
        assert loaded["a"].tolist() == loaded["b"].tolist() == [1, 1, 1], save


def test_streamed_checkpoint(device, tmp_path):
    path = tmp_path / "checkpoint"
    tied = nn.Parameter(torch.ones(2, device=device))
    data = {
        "a": tied,
        "again": tied,
        "list": [torch.zeros(1, device=device), torch.arange(3)],
        "step": 7,
        "name": "x",
    }
    xser.save(data, path)
    assert data["a"] is tied and data["list"][0].device == device
    loaded = xser.load(path)
    assert loaded["a"] is loaded["again"] and isinstance(loaded["a"], nn.Parameter)
    assert loaded["a"].device.type == loaded["list"][0].device.type == "cpu"
    assert loaded["list"][1].tolist() == [0, 1, 2]
    assert loaded["step"] == 7 and loaded["name"] == "x"
    assert len(list((tmp_path / "checkpoint.tensors").iterdir())) == 3
    assert xser.load(path, map_location=device)["list"][0].device == device
    xser.save({"a": torch.full((2,), 5.0, device=device)}, path)
    assert xser.load(path)["a"].tolist() == [5, 5]
    assert len(list((tmp_path / "checkpoint.tensors").iterdir())) == 1


def test_streamed_training_state(device, tmp_path):
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(5, 3, device=device)).sum().backward()
    optimizer.step()
    xser.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "c")
    loaded = xser.load(tmp_path / "c")
    model.load_state_dict(loaded["model"])
    optimizer.load_state_dict(loaded["optimizer"])
    assert {s["exp_avg"].device for s in optimizer.state.values()} == {device}


def test_streaming_holds_one_tensor_on_the_host(tmp_path):
    # In a process of its own, whose resident memory shows the CPU device's arrays too.
    code = f"""
        import threading, time, torch, torch_xla
        from torch_xla.utils import serialization
        def resident():
            return int(open("/proc/self/statm").read().split()[1]) * 4096
        def peak_of(function):
            before, peak, done = resident(), 0, threading.Event()
            def watch():
                nonlocal peak
                while not done.is_set():
                    peak = max(peak, resident() - before)
                    time.sleep(0.002)
            thread = threading.Thread(target=watch)
            thread.start()
            result = function()
            done.set()
            thread.join()
            return peak / size, result
        count, size, path = 12, 32 << 20, {str(tmp_path / "streamed")!r}
        data = [torch.full((size // 4,), float(i), device="xla") for i in range(count)]
        torch_xla.sync(wait=True)
        serialization.save(data[:1], path)
        serialization.load(path, "xla")
        saving, _ = peak_of(lambda: serialization.save(data, path))
        loading, loaded = peak_of(lambda: serialization.load(path, "xla"))
        assert [t[0].item() for t in loaded] == list(range(count))
        print(saving, loading - count)
        """
    saving, loading = map(float, run_in_process(code).split())
    assert saving < 3 and loading < 3, (saving, loading)


@pytest.mark.parametrize("damage", ["truncated", "foreign", "empty", "missing tensor", "hostile"])
def test_damaged_checkpoints_are_clear_errors(device, tmp_path, damage):
    path = tmp_path / "c"
    xser.save({"a": torch.ones(100, device=device)}, path)
    [tensor] = (tmp_path / "c.tensors").iterdir()
    if damage == "truncated":
        tensor.write_bytes(tensor.read_bytes()[:200])
    elif damage == "foreign":
        path.write_bytes(b"GIF89a" + bytes(100))
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "missing tensor":
        tensor.unlink()
    else:
        torch.save(Bomb(), path)
    with pytest.raises((RuntimeError, FileNotFoundError), match=r"load: .*c") as caught:
        xser.load(path)
    assert "code ran" not in str(caught.value)


def test_reference_to_a_foreign_path_is_refused(device, tmp_path):
    reference = xser.TensorReference(0)
    reference.tid = "../../secret"
    torch.save({"a": reference}, tmp_path / "c")
    with pytest.raises(RuntimeError, match="damaged: a tensor has no number"):
        xser.load(tmp_path / "c")


@pytest.mark.parametrize(
    "damage", [lambda b: b[:150], lambda b: b"not a checkpoint", lambda b: b""]
)
def test_damaged_files_are_errors_of_torch_load(device, damage):
    buffer = io.BytesIO()
    torch.save({"a": torch.ones(3, device=device)}, buffer)
    with pytest.raises((RuntimeError, EOFError, pickle.UnpicklingError)):
        torch.load(io.BytesIO(damage(buffer.getvalue())), map_location=device)
    hostile = io.BytesIO()
    torch.save(Bomb(), hostile)
    hostile.seek(0)
    with pytest.raises(pickle.UnpicklingError, match="Weights only load failed"):
        torch.load(hostile, map_location=device)


def test_safetensors(device, tmp_path):
    from safetensors.torch import load_file, load_model, save_file, save_model

    path = tmp_path / "model.safetensors"
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).to(device)
    save_file(model.state_dict(), path)
    loaded = load_file(path)
    other = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).to(device)
    other.load_state_dict(loaded)
    assert torch.equal(other[0].weight.cpu(), model[0].weight.cpu())
    assert other[0].weight.device == device
    on_device = load_file(path, device="xla:0")
    assert {t.device for t in on_device.values()} == {device}
    with torch.no_grad():
        model[0].weight.fill_(5)
    save_model(model, path)
    load_model(other, path)
    assert (other[0].weight == 5).all() and other[0].weight.device == device


def test_safetensors_finds_what_shares_memory(device, tmp_path):
    from safetensors.torch import load_model, save_file, save_model

    tied = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)).to(device)
    tied[1].weight = tied[0].weight
    with pytest.raises(RuntimeError, match="share memory"):
        save_file(tied.state_dict(), tmp_path / "refused.safetensors")
    save_model(tied, tmp_path / "tied.safetensors")
    other = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)).to(device)
    other[1].weight = other[0].weight
    load_model(other, tmp_path / "tied.safetensors")
    assert torch.equal(other[1].weight.cpu(), tied[0].weight.cpu())
    untied = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)).to(device)
    save_file(untied.state_dict(), tmp_path / "untied.safetensors")


@pytest.mark.parametrize("use", ["xm", "torch.xla", "generator"])
def test_resumed_training_repeats_exactly(device, tmp_path, use):
    def make():
        torch.manual_seed(3)
        model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 1)).to(device)
        return model, torch.optim.Adam(model.parameters(), lr=0.1)

    def train(model, optimizer, steps):
        for _ in range(steps):
            optimizer.zero_grad()
            model(torch.rand(6, 4, device=device)).square().mean().backward()
            optimizer.step()
            torch_xla.sync()
        return [p.detach().cpu() for p in model.parameters()]

    def rng():
        if use == "xm":
            return xm.get_rng_state()
        if use == "torch.xla":
            return torch.xla.get_rng_state()
        return torch.xla.default_generators[0].get_state()

    def set_rng(state):
        if use == "xm":
            xm.set_rng_state(state)
        elif use == "torch.xla":
            torch.xla.set_rng_state(state)
        else:
            torch.xla.default_generators[0].set_state(state)

    model, optimizer = make()
    train(model, optimizer, 2)
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "rng": rng()}
    xm.save(state, tmp_path / "state")
    expected = train(model, optimizer, 3)
    model, optimizer = make()
    torch.manual_seed(99)
    loaded = torch.load(tmp_path / "state")
    model.load_state_dict(loaded["model"])
    optimizer.load_state_dict(loaded["optimizer"])
    set_rng(loaded["rng"])
    for a, b in zip(train(model, optimizer, 3), expected, strict=True):
        assert torch.equal(a, b)


def test_fork_rng_restores(device):
    expected = []
    for fork in (False, True):
        torch.manual_seed(5)
        if fork:
            with xm.fork_rng():
                torch.rand(3, device=device)
            with torch.random.fork_rng(device_type="xla"):
                torch.rand(3, device=device)
        expected.append(torch.rand(3, device=device).tolist())
    assert expected[0] == expected[1]
