"""The programs in examples/ do what they are for, on sizes that take seconds.

They run in this process, which has imported their libraries once.
"""

from __future__ import annotations

import importlib
import os

os.environ["HF_HUB_OFFLINE"] = "1"

import pytest
import torch
from clone import ROOT

import torch_xla
from torch_xla.debug import metrics

EXAMPLES = ROOT / "examples"
# Libraries of others warn of each other.
pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture
def run(monkeypatch, quick_compilation):
    """Calls an example's `main` with a command line."""
    monkeypatch.syspath_prepend(EXAMPLES)

    def call(name, command=""):
        module = importlib.import_module(name)
        result = module.main(command.split())
        assert metrics.executed_fallback_ops() == []
        return result

    return call


def compiled():
    return metrics.counter_value("UncachedCompile") or 0


def test_examples_are_small():
    lengths = {p.name: len(p.read_text().splitlines()) for p in EXAMPLES.glob("*.py")}
    assert {name: length for name, length in lengths.items() if length > 160} == {}


RESNET = "--batch-size 4 --image-size 32 --width 4 --blocks 1 1 1 1"


def test_resnet_learns_invented_images(run):
    losses = run("resnet50", f"{RESNET} --steps 8 --lr 0.02")
    assert len(losses) == 8 and losses[-1] < losses[0]
    assert compiled() <= 4


def test_resnet_reads_folders_of_images(run, tmp_path):
    image = pytest.importorskip("PIL.Image")
    for name, colour in (("cat", (200, 30, 30)), ("dog", (30, 30, 200))):
        folder = tmp_path / "train" / name
        folder.mkdir(parents=True)
        for number in range(4):
            image.new("RGB", (40 + number, 30), colour).save(folder / f"{number}.png")
    losses = run("resnet50", f"{RESNET} --steps 4 --data {tmp_path} --bfloat16")
    assert len(losses) == 4 and losses[-1] < losses[0]


def test_gpt2_learns_and_writes(run, capsys):
    losses = run("gpt2", "--steps 40 --batch-size 4 --length 16 --layers 1 --width 32 --write 6")
    assert losses[-1] < 0.9 * losses[0]
    # The step, the first ones of the optimizer and of the sum; the letters, one of them twice.
    assert compiled() <= 10
    assert len(capsys.readouterr().out.splitlines()) >= 12


def test_bert_is_trained_by_the_trainer(run):
    assert run("bert_trainer", "--sentences 512 --length 16 --epochs 3 --layers 1") > 0.9


def test_llama_is_tuned_with_lora(run, tmp_path):
    first, last = run(
        "llama_lora",
        f"--steps 40 --batch-size 4 --length 12 --width 32 --layers 1 --out {tmp_path}",
    )
    assert last < 0.9 * first
    saved = [path.name for path in tmp_path.iterdir()]
    assert "adapter_model.safetensors" in saved
    assert compiled() <= 5


def test_llama_is_tuned_with_layers_computed_again(run):
    losses = [
        run("llama_lora", f"--steps 3 --batch-size 2 --length 8 --width 32 --layers 1 {more}")[1]
        for more in ("", "--checkpoint")
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)


def test_generation_compiles_no_token_anew(run):
    short = "--batch-size 1 --length 5 --tokens"
    tokens, count = run("generate", f"{short} 12")
    assert count <= 5
    more, count_of_more = run("generate", f"{short} 24")
    assert count_of_more <= 5 and more[0][:12] == tokens[0]
    growing, count_of_growing = run("generate", f"{short} 24 --growing")
    assert growing == more and count_of_growing <= 5


def test_whisper_transcribes_with_few_programs(run):
    tokens, count = run("whisper", "--tokens 8")
    assert len(tokens) == 8 and all(0 <= token < 64 for token in tokens)
    assert count <= 5


def test_vision_transformer_learns_digits(run):
    assert run("vit", "--epochs 5 --width 32 --layers 1 --lr 4e-3") > 0.35


def test_graph_network_finds_communities(run):
    assert run("gnn", "--nodes 200 --edges 1500 --steps 60") > 0.75
    assert compiled() <= 6


def test_gan_comes_nearer_to_digits(run):
    before, after = run("gan", "--steps 60 --batch-size 32 --width 8")
    assert after < 0.8 * before
    assert compiled() <= 6


def test_custom_operators_are_right(run):
    pytest.importorskip("jax")
    errors = run("custom_ops", "--size 64")
    assert len(errors) == 4 and max(errors.values()) < 1e-5


def test_model_is_written_as_stablehlo_and_runs(run, tmp_path):
    text, error = run("export_stablehlo", f"--out {tmp_path}")
    assert "stablehlo.convolution" in text and error < 1e-5
    assert (tmp_path / "data").is_dir()


def test_slow_program_is_mended(run, tmp_path):
    slow, mended = run("profile_slow", f"--epochs 3 --rows 200 --trace {tmp_path}")
    assert slow["reads"] == 3 * 4 and mended["reads"] == 1
    assert slow["compilations"] > mended["compilations"]
    assert list((tmp_path / "slow").rglob("*.xplane.pb"))


@pytest.mark.parametrize("more", ["", "--xl"])
def test_second_image_compiles_nothing(run, more):
    (first, second), image = run("stable_diffusion", f"--steps 3 {more}")
    assert first > 0 and second == 0
    assert torch.isfinite(image).all() and image.std() > 0
    torch_xla.sync()
