"""Hugging Face's models train on xla as on the CPU, from configurations alone."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable

os.environ["HF_HUB_OFFLINE"] = "1"

import pytest
import torch
from counts import counted
from torch import Tensor, nn

import torch_xla
from torch_xla.debug import metrics

transformers = pytest.importorskip("transformers")

STEPS = 10
Batch = dict[str, Tensor]


def make_gpt2(dropout: float) -> nn.Module:
    config = transformers.GPT2Config(
        vocab_size=101,
        n_positions=32,
        n_embd=32,
        n_layer=2,
        n_head=4,
        resid_pdrop=dropout,
        embd_pdrop=dropout,
        attn_pdrop=dropout,
        bos_token_id=0,
        eos_token_id=0,
    )
    return transformers.GPT2LMHeadModel(config)


def make_bert(dropout: float) -> nn.Module:
    config = transformers.BertConfig(
        vocab_size=101,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=32,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        num_labels=3,
    )
    return transformers.BertForSequenceClassification(config)


def make_mixtral(dropout: float) -> nn.Module:
    """Of whose experts each multiplies the tokens that chose it, as many as there are."""
    config = transformers.MixtralConfig(
        vocab_size=101,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        num_local_experts=4,
        max_position_embeddings=32,
        attention_dropout=dropout,
    )
    return transformers.MixtralForCausalLM(config)


def gpt2_batch() -> Batch:
    tokens = torch.randint(101, (2, 16))
    return {"input_ids": tokens, "labels": tokens}


def bert_batch() -> Batch:
    mask = torch.ones(4, 12, dtype=torch.long)
    mask[1, 8:] = 0
    return {
        "input_ids": torch.randint(101, (4, 12)),
        "attention_mask": mask,
        "labels": torch.randint(3, (4,)),
    }


MODELS: dict[str, tuple[Callable[[float], nn.Module], Callable[[], Batch]]] = {
    "gpt2": (make_gpt2, gpt2_batch),
    "bert": (make_bert, bert_batch),
    "mixtral": (make_mixtral, gpt2_batch),
}


def train(model: nn.Module, batches: list[Batch], device: str) -> tuple[list[float], list[int]]:
    """The losses, and how many programs each step compiled."""
    model.to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, eps=1e-3)
    losses, compiled = [], []
    for batch in batches:
        moved = {name: tensor.to(device) for name, tensor in batch.items()}
        with counted() as counts:
            optimizer.zero_grad()
            loss = model(**moved).loss
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.detach())
            torch_xla.sync()
        compiled.append(counts.compiled)
    return [loss.item() for loss in losses], compiled


@pytest.fixture(autouse=True)
def cleared() -> None:
    torch_xla._XLAC._clear_compilation_cache()
    metrics.clear_counters()


@pytest.mark.parametrize("name", MODELS)
def test_ten_steps_as_on_the_cpu(name: str):
    torch.manual_seed(3)
    make, make_batch = MODELS[name]
    model = make(0.0)
    on_cpu = copy.deepcopy(model)
    batches = [make_batch() for _ in range(STEPS)]
    expected, _ = train(on_cpu, batches, "cpu")
    actual, compiled = train(model, batches, "xla")
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)
    for (parameter_name, actual_value), expected_value in zip(
        model.named_parameters(), on_cpu.parameters(), strict=True
    ):
        torch.testing.assert_close(
            actual_value.detach().cpu(),
            expected_value.detach(),
            rtol=1e-3,
            atol=1e-4,
            msg=lambda text, parameter_name=parameter_name: f"{parameter_name}: {text}",
        )
    # BERT reads its mask in the forward pass (`padding_mask.all()`): a program of its own.
    assert sum(compiled) <= (3 if name == "bert" else 2)
    assert compiled[2:] == [0] * (STEPS - 2)
    assert metrics.executed_fallback_ops() == []


@pytest.mark.parametrize("name", MODELS)
def test_dropout_compiles_no_more(name: str):
    torch.manual_seed(3)
    make, make_batch = MODELS[name]
    losses, compiled = train(make(0.2), [make_batch()] * STEPS, "xla")
    assert compiled[2:] == [0] * (STEPS - 2)
    assert len(set(losses)) == STEPS
    assert metrics.executed_fallback_ops() == []


def test_gpt2_head_stays_tied_to_its_embedding():
    model = make_gpt2(0.0).to("xla")
    assert model.lm_head.weight is model.transformer.wte.weight


def test_gpt2_generates_the_same_tokens():
    torch.manual_seed(3)
    model = make_gpt2(0.0).eval()
    prompt = torch.randint(101, (1, 5))
    options = {"max_new_tokens": 6, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
    expected = model.generate(prompt, **options)
    actual = model.to("xla").generate(prompt.to("xla"), **options)
    assert actual.cpu().tolist() == expected.tolist()
    assert metrics.executed_fallback_ops() == []


@pytest.mark.parametrize("is_tied", [True, False])
def test_gpt2_is_saved_from_the_device_and_loaded(tmp_path, is_tied):
    config = transformers.GPT2Config(
        vocab_size=101, n_positions=8, n_embd=8, n_layer=1, n_head=2, bos_token_id=0,
        eos_token_id=0, tie_word_embeddings=is_tied,
    )  # fmt: skip
    model = transformers.GPT2LMHeadModel(config).to("xla")
    model.save_pretrained(tmp_path)
    loaded = transformers.GPT2LMHeadModel.from_pretrained(tmp_path)
    assert (loaded.lm_head.weight is loaded.transformer.wte.weight) == is_tied
    saved = model.state_dict()
    assert saved.keys() == loaded.state_dict().keys()
    for name, value in loaded.state_dict().items():
        assert torch.equal(value, saved[name].cpu()), name
