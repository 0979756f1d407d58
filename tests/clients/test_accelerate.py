"""Hugging Face's accelerate and `Trainer` train on one xla device without a patch."""

from __future__ import annotations

import os

os.environ["HF_HUB_OFFLINE"] = "1"

import pytest
import torch
from processes import run_in_process
from quick_options import COMPILING_QUICKLY
from torch import nn

accelerate = pytest.importorskip("accelerate")
pytest.importorskip("transformers")

# Their choice of a device is global: every program gets a process.
ACCELERATE = """
import copy, torch, torch_xla
from torch import nn
from accelerate import Accelerator

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
data, target = torch.randn(48, 8), torch.randint(0, 3, (48,))
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(data, target), batch_size=8)

def plain(module):
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(x), y).backward()
        nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
    return module.state_dict()

want = plain(copy.deepcopy(model))
accelerator = Accelerator(mixed_precision=PRECISION, **ARGUMENTS)
assert accelerator.device.type == "xla", accelerator.device
assert accelerator.num_processes == 1 and accelerator.is_main_process
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
model, optimizer, batches = accelerator.prepare(model, optimizer, loader)
losses = []
for x, y in batches:
    assert x.device.type == "xla"
    optimizer.zero_grad()
    with accelerator.autocast():
        output = model(x)
    assert output.device.type == "xla"
    loss = nn.functional.cross_entropy(output.float(), y)
    accelerator.backward(loss)
    accelerator.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    losses.append(accelerator.gather(loss.detach()))
got = accelerator.get_state_dict(model)
for name, value in got.items():
    torch.testing.assert_close(value.float().cpu(), want[name], rtol=TOLERANCE, atol=TOLERANCE)
assert torch_xla.debug.metrics.executed_fallback_ops() == []
assert accelerator.reduce(torch.ones(2, device=accelerator.device)).tolist() == [1, 1]
numbers = torch.arange(3, device=accelerator.device)
assert accelerator.gather_for_metrics(numbers).tolist() == [0, 1, 2]
accelerator.wait_for_everyone()
accelerator.save(got, FOLDER + "/weights.pt")
accelerator.save_state(FOLDER + "/state")
before = [p.detach().cpu() for p in model.parameters()]
with torch.no_grad():
    for p in model.parameters():
        p.zero_()
accelerator.load_state(FOLDER + "/state")
assert all(torch.equal(p.detach().cpu(), b) for p, b in zip(model.parameters(), before))
print("trained", len(losses))
"""


@pytest.mark.parametrize(("precision", "tolerance"), [("no", 1e-5), ("bf16", 0.02)])
def test_accelerate_trains(tmp_path, precision, tolerance):
    head = (
        f"PRECISION, TOLERANCE, ARGUMENTS, FOLDER = "
        f"{precision!r}, {tolerance}, {{}}, {str(tmp_path)!r}\n"
    )
    assert run_in_process(head + ACCELERATE).endswith("trained 6")


TRAINER = """
import sys
if DEVICE == "cpu":
    sys.modules["torch_xla"] = None  # else it is used, whatever the arguments say
else:
    import torch_xla
import torch, transformers
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

transformers.logging.set_verbosity_error()

class Tokens(torch.utils.data.Dataset):
    def __init__(self):
        self.rows = torch.randint(0, 64, (24, 12), generator=torch.Generator().manual_seed(3))
    def __len__(self):
        return len(self.rows)
    def __getitem__(self, i):
        return {"input_ids": self.rows[i], "labels": self.rows[i]}

def train(**arguments):
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=64, n_positions=16, n_embd=16, n_layer=2, n_head=2,
                        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0,
                        eos_token_id=0)
    trainer = Trainer(
        model=GPT2LMHeadModel(config),
        args=TrainingArguments(
            output_dir=FOLDER, num_train_epochs=2, per_device_train_batch_size=4, report_to=[],
            learning_rate=1e-2, logging_steps=3, save_strategy="no", disable_tqdm=True, seed=1,
            **arguments),
        train_dataset=Tokens(), eval_dataset=Tokens())
    result = trainer.train()
    return trainer, result.training_loss

trainer, loss = train(**ARGUMENTS)
assert trainer.args.device.type == DEVICE, trainer.args.device
assert next(trainer.model.parameters()).device.type == DEVICE
assert trainer.state.global_step == 12
evaluated = trainer.evaluate()["eval_loss"]
trainer.save_model(FOLDER + "/model")
again = GPT2LMHeadModel.from_pretrained(FOLDER + "/model")
state = {k: v.cpu() for k, v in trainer.model.state_dict().items()}
assert all(torch.equal(v, state[k]) for k, v in again.state_dict().items())
print("fallbacks", torch_xla.debug.metrics.executed_fallback_ops() if DEVICE == "xla" else [])
print(loss, evaluated)
"""


def run_trainer(folder, arguments, device="xla"):
    head = f"DEVICE, ARGUMENTS, FOLDER = {device!r}, {arguments!r}, {str(folder)!r}\n"
    # One of them is computed as on users' machines.
    lines = run_in_process(head + TRAINER, **(COMPILING_QUICKLY if arguments else {})).splitlines()
    assert "fallbacks []" in lines
    return tuple(map(float, lines[-1].split()))


@pytest.fixture(scope="module")
def on_cpu(tmp_path_factory):
    return run_trainer(tmp_path_factory.mktemp("cpu"), {"use_cpu": True}, "cpu")


@pytest.mark.parametrize(
    ("arguments", "tolerance"), [({}, 1e-3), ({"bf16": True}, 0.05), ({"optim": "sgd"}, None)]
)
def test_trainer_trains_evaluates_and_saves(tmp_path, on_cpu, arguments, tolerance):
    loss, evaluated = run_trainer(tmp_path, arguments)
    assert evaluated < loss < 5
    if tolerance is not None:
        torch.testing.assert_close((loss, evaluated), on_cpu, rtol=tolerance, atol=tolerance)


def test_a_model_is_spread_over_the_cpu_and_the_device():
    """accelerate moves the weights of the parts that wait on the CPU when their turn comes, and
    tells by addresses which of them are tied."""
    model = nn.ModuleDict({name: nn.Linear(4, 4) for name in ("first", "second", "third")})
    model["third"].weight = model["first"].weight
    model.forward = lambda x: model["third"](model["second"](model["first"](x)))
    x = torch.randn(2, 4)
    want = model(x).detach()
    places = {"first": "xla:0", "second": "cpu", "third": "xla:0"}
    spread = accelerate.dispatch_model(model, places, main_device="xla:0")
    got = spread(x)
    torch.testing.assert_close(got.detach().cpu(), want, rtol=1e-4, atol=1e-5)
    weights = [spread[name].weight for name in ("first", "third")]
    assert {w.device.type for w in weights} == {"xla"}
    assert weights[0].data_ptr() == weights[1].data_ptr()
    assert accelerate.utils.modeling.id_tensor_storage(weights[0])[1] == weights[0].data_ptr()
