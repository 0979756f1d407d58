"""Hugging Face's `generate` gives the CPU's tokens from few programs: sequences, masks and caches
grow by a token at a time. A few models here; with GENERATION=all, as in `make conformance`, each
with both caches, and with greedy search, sampling and beams."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import pytest
import torch
from counts import counted
from torch import Tensor, nn

import torch_xla
from torch_xla.debug import metrics

transformers = pytest.importorskip("transformers")

NEW_TOKENS = 40
TEXT = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 0, "vocab_size": 101}
SMALL = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
}


def make_gpt2() -> nn.Module:
    config = transformers.GPT2Config(n_positions=128, n_embd=32, n_layer=2, n_head=4, **TEXT)
    return transformers.GPT2LMHeadModel(config)


def make_llama() -> nn.Module:
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**SMALL, **TEXT))


def make_qwen3() -> nn.Module:
    return transformers.Qwen3ForCausalLM(transformers.Qwen3Config(head_dim=8, **SMALL, **TEXT))


def make_mixtral() -> nn.Module:
    config = transformers.MixtralConfig(num_local_experts=4, **SMALL, **TEXT)
    return transformers.MixtralForCausalLM(config)


def make_t5() -> nn.Module:
    config = transformers.T5Config(
        d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, decoder_start_token_id=0, **TEXT
    )
    return transformers.T5ForConditionalGeneration(config)


def make_whisper() -> nn.Module:
    config = transformers.WhisperConfig(
        d_model=32, encoder_layers=1, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, num_mel_bins=8,
        max_source_positions=20, max_target_positions=128, decoder_start_token_id=0,
        suppress_tokens=None, begin_suppress_tokens=None, **TEXT,
    )  # fmt: skip
    return transformers.WhisperForConditionalGeneration(config)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "gpt2": make_gpt2,
    "llama": make_llama,
    "qwen3": make_qwen3,
    "mixtral": make_mixtral,
    "t5": make_t5,
    "whisper": make_whisper,
}
MODES: dict[str, dict[str, Any]] = {
    "greedy": {"do_sample": False},
    "sampling": {"do_sample": True},
    "beams": {"do_sample": False, "num_beams": 3},
}
EVERY = [(m, c, o) for m in MODELS for c in ("static", "dynamic") for o in MODES]
FEW = [("llama", "static", "greedy"), ("llama", "dynamic", "greedy"), ("gpt2", "dynamic", "beams")]


def prompt_of(name: str, length: int) -> dict[str, Tensor]:
    if name == "whisper":
        return {"input_features": torch.randn(2, 8, 40)}
    return {"input_ids": torch.randint(2, 101, (2, length))}


# The programs of a first call and of one with another prompt length. Beams have three reads a
# token.
MOST = {"greedy": (6, 2), "sampling": (6, 2), "beams": (12, 9)}


@pytest.mark.parametrize(
    ("name", "cache", "mode"), EVERY if os.environ.get("GENERATION") == "all" else FEW
)
def test_tokens_of_the_cpu_from_few_programs(name: str, cache: str, mode: str):
    torch.manual_seed(3)
    torch_xla._XLAC._clear_compilation_cache()
    model = MODELS[name]().eval()
    options = {"max_new_tokens": NEW_TOKENS, **MODES[mode]}
    if cache == "static":
        options |= {"cache_implementation": "static", "disable_compile": True}
    prompts = [prompt_of(name, length) for length in (6, 9)]
    expected = [model.generate(**p, **options).tolist() for p in prompts]
    model = model.to("xla")
    for prompt, want, most in zip(prompts, expected, MOST[mode], strict=True):
        on_xla = {key: tensor.to("xla") for key, tensor in prompt.items()}
        with counted() as counts:
            got = model.generate(**on_xla, **options).tolist()
        assert counts.compiled <= most
        if mode != "sampling":
            assert got == want
    assert metrics.executed_fallback_ops() == []
