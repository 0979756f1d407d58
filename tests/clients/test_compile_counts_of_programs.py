"""How many programs Hugging Face's `Trainer` compiles for ragged batches, and diffusers' Stable
Diffusion with each of six schedulers."""

from __future__ import annotations

import os
import sys

os.environ["HF_HUB_OFFLINE"] = "1"

import pytest
from clone import ROOT
from counts import counted
from processes import run_in_process
from quick_options import COMPILING_QUICKLY

import torch_xla

pytestmark = pytest.mark.usefixtures("quick_compilation", "cleared")


@pytest.fixture
def cleared() -> None:
    torch_xla._XLAC._clear_compilation_cache()


TRAINER = """
import torch, torch_xla
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, i):
        length = 5 + (i // 2 * 7) % 20  # twenty lengths, in no order
        return {"input_ids": torch.randint(1, 64, (length,)), "labels": i % 2}

def collate(rows):
    ids = torch.nn.utils.rnn.pad_sequence([r["input_ids"] for r in rows], batch_first=True)
    labels = torch.tensor([r["labels"] for r in rows])
    return {"input_ids": ids, "attention_mask": (ids > 0).long(), "labels": labels}

torch.manual_seed(0)
config = BertConfig(vocab_size=64, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
                    intermediate_size=32, max_position_embeddings=32, hidden_dropout_prob=0.0,
                    attention_probs_dropout_prob=0.0)
trainer = Trainer(
    model=BertForSequenceClassification(config),
    args=TrainingArguments(
        output_dir=FOLDER, num_train_epochs=1, per_device_train_batch_size=2, report_to=[],
        logging_strategy="no", save_strategy="no", disable_tqdm=True),
    train_dataset=Rows(), data_collator=collate)
trainer.get_train_dataloader = lambda: trainer.accelerator.prepare(
    torch.utils.data.DataLoader(Rows(), batch_size=2, collate_fn=collate))
before = torch_xla._XLAC._computation_stats()[0]
trainer.train()
assert trainer.state.global_step == 20
print(torch_xla._XLAC._computation_stats()[0] - before)
"""


def test_an_epoch_of_ragged_batches_by_trainer(tmp_path):
    pytest.importorskip("transformers")
    lines = run_in_process(
        f"FOLDER = {str(tmp_path)!r}\n{TRAINER}", XLA_BOUNDED_SIZES="1", **COMPILING_QUICKLY
    ).splitlines()
    assert int(lines[-1]) <= 6


# Programs of the first image, at most; the second has none.
SCHEDULERS = {
    "DDIMScheduler": 4,
    "EulerDiscreteScheduler": 4,
    "DDPMScheduler": 4,
    "PNDMScheduler": 7,
    "LMSDiscreteScheduler": 6,
    "DPMSolverMultistepScheduler": 5,
}
FEW = ["DDIMScheduler", "EulerDiscreteScheduler"]


# NumPy 2 says this of PyTorch's tensors of any device.
@pytest.mark.filterwarnings("ignore:__array__ implementation")
@pytest.mark.parametrize("name", SCHEDULERS if os.environ.get("GENERATION") == "all" else FEW)
def test_stable_diffusion(name: str, monkeypatch):
    diffusers = pytest.importorskip("diffusers")
    monkeypatch.syspath_prepend(ROOT / "examples")
    monkeypatch.delitem(sys.modules, "stable_diffusion", raising=False)
    import stable_diffusion

    device = torch_xla.device()
    pipeline = stable_diffusion.small_pipeline(False).to(device)
    pipeline.scheduler = getattr(diffusers, name).from_config(pipeline.scheduler.config)
    pipeline.set_progress_bar_config(disable=True)
    prompt = stable_diffusion.random_prompt(False, device)
    for most in (SCHEDULERS[name], 0):
        with counted() as counts:
            images = pipeline(**prompt, num_inference_steps=6, output_type="pt").images
            assert images.cpu().isfinite().all()
        assert counts.compiled <= most
