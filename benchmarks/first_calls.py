"""What is waited for before a program is warm: GPT-2's first training step, and the first calls of
Hugging Face's `generate`, each in a process of its own, beside eager PyTorch and `torch.compile`.

Programs come from no disk. `compiles` counts XLA's compilations, and behind the slash those of more
than a tenth of the longest one's time; `model`: XLA's compilation of the forward pass alone.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from measure import print_table, ratio

FIRST_STEP_LIMIT = 3.0  # of the forward pass's compilation
NEW_TOKENS = 40


def gpt2(layers: int) -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(n_layer=layers, use_cache=False))


def training_step(way: str, layers: int) -> list[float]:
    """Seconds of the first and of the third step, and of the forward pass's compilation."""
    model = gpt2(layers)
    tokens = torch.randint(1000, (2, 64))
    forward = 0.0
    if way == "here":
        import torch_xla
        from torch_xla import _XLAC

        model, tokens = model.to("xla"), tokens.to("xla")
        torch_xla.sync(wait=True)
        with torch.no_grad():
            model(tokens).logits.sum().cpu()
        forward = _XLAC._metric_data("CompileTime")[1] * 1e-9
        _XLAC._clear_compilation_cache()
    if way == "torch.compile":
        model = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        optimizer.zero_grad()
        loss = model(tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        if way == "here":
            torch_xla.sync()
        loss.item()
        seconds.append(time.perf_counter() - start)
    return [seconds[0], seconds[2], forward]


def generation(way: str, cache: str) -> list[float]:
    """Of the first call, and of one with another prompt length: seconds, and programs."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=1000, hidden_size=256, intermediate_size=512, num_hidden_layers=4,
        num_attention_heads=8, num_key_value_heads=8, max_position_embeddings=256,
        bos_token_id=0, eos_token_id=1, pad_token_id=0,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    options: dict[str, Any] = {"max_new_tokens": NEW_TOKENS, "do_sample": False}
    if cache == "static":
        options |= {"cache_implementation": "static", "disable_compile": True}
    device = "cpu" if way == "eager" else "xla"
    model = model.to(device)
    found: list[float] = []
    for length in (6, 9):
        prompt = torch.randint(2, 1000, (2, length)).to(device)
        times: list[float] = []
        if way != "eager":
            from torch_xla.debug import metrics

            metrics.clear_metrics()
        start = time.perf_counter()
        model.generate(prompt, **options).cpu()
        found.append(time.perf_counter() - start)
        if way != "eager":
            data = metrics.metric_data("CompileTime")
            times = [nanoseconds for _, nanoseconds in data[2]] if data else []
        found += [len(times), sum(t > max(times) / 10 for t in times)]
    return found


RUNS: dict[str, Callable[..., list[float]]] = {"step": training_step, "generate": generation}


def run(*arguments: str, **environment: str) -> list[float]:
    """Of a fresh process."""
    done = subprocess.run(
        [sys.executable, __file__, "--child", ",".join(arguments)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env=os.environ | {"XLA_PERSISTENT_CACHE": "0", "HF_HUB_OFFLINE": "1"} | environment,
    )
    return [float(word) for word in done.stdout.split()[-6:]]


WAYS: dict[str, dict[str, str]] = {
    "here": {},
    "here, XLA_BOUNDED_SIZES=1": {"XLA_BOUNDED_SIZES": "1"},
    "here, XLA_BOUNDED_GROWTH=0": {"XLA_BOUNDED_GROWTH": "0"},
    "here, XLA_GRAPH_CUTS=1 and no growth": {"XLA_BOUNDED_GROWTH": "0", "XLA_GRAPH_CUTS": "1"},
}


STEP_WAYS: dict[str, dict[str, str]] = {
    "here": {},
    "here, XLA_LAYER_PROGRAMS=1": {"XLA_LAYER_PROGRAMS": "1"},
    "here, XLA_TIERED_COMPILATION=1": {"XLA_TIERED_COMPILATION": "1"},
    "torch.compile": {},
    "eager": {},
}


def print_steps(layers: int) -> None:
    rows = []
    model = 0.0
    for way, environment in STEP_WAYS.items():
        first, third, forward = run("step", way.partition(",")[0], str(layers), **environment)[-3:]
        model = model or forward  # as one program
        of_model = ratio(first / model, FIRST_STEP_LIMIT) if forward else ""
        rows.append([way, f"{first:.1f}", of_model, f"{third:.2f}"])
    print_table(
        f"GPT-2, {layers} layers, training", ["way", "first step s", "of model", "third s"], rows
    )


def print_generation() -> None:
    for cache in ("static", "dynamic"):
        rows = []
        for way, environment in ({"eager": {}} | WAYS).items():
            kind = way.partition(",")[0]
            first, programs, large, second, more, more_large = run(
                "generate", kind, cache, **environment
            )
            rows.append(
                [
                    way,
                    f"{first:.2f}",
                    f"{programs:.0f} / {large:.0f}",
                    f"{second:.2f}",
                    f"{more:.0f} / {more_large:.0f}",
                ]
            )
        print_table(
            f"generate, {NEW_TOKENS} tokens, {cache} cache",
            ["way", "first call s", "compiles", "other length s", "compiles"],
            rows,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--only", choices=[*RUNS], help="one table")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        kind, *rest = args.child.split(",")
        print(*RUNS[kind](rest[0], int(rest[1]) if kind == "step" else rest[1]))
        return
    if args.only != "generate":
        print_steps(args.layers)
    if args.only != "step":
        print_generation()


if __name__ == "__main__":
    main()
