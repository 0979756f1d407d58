"""Generates text with a cache of one size, so that every token is the same program.

    pip install transformers
    python examples/generate.py                        a small Llama, from random numbers
    python examples/generate.py --model DIR            one that was saved by `save_pretrained`
    python examples/generate.py --growing              a cache that grows: see what it costs

`StaticCache` has room for all tokens from the start. Where the next token goes is a tensor, thus
data; as a Python number it would be part of the program. A cache that grows with each token has
other sizes each time: from the third token on, one program serves all sizes up to a bound.
"""

import argparse
import time

import torch
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM, StaticCache

import torch_xla
import torch_xla.debug.metrics as metrics


def small_llama() -> LlamaForCausalLM:
    config = LlamaConfig(
        vocab_size=128,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
    )
    return LlamaForCausalLM(config)


@torch.no_grad()
def generate(
    model: LlamaForCausalLM, prompt: torch.Tensor, count: int, is_growing: bool = False
) -> torch.Tensor:
    """The `count` most likely tokens behind a prompt of shape [batch, length], on its device."""
    device, length = prompt.device, prompt.shape[1]
    if is_growing:
        cache = DynamicCache(config=model.config)
    else:
        cache = StaticCache(config=model.config, max_cache_len=length + count)
    tokens, position = [], torch.arange(length, device=device)
    token = prompt
    for _ in range(count):
        logits = model(
            token, past_key_values=cache, position_ids=position[None], use_cache=True
        ).logits
        token = logits[:, -1].argmax(-1, keepdim=True)
        position = position[-1:] + 1
        tokens.append(token)
        torch_xla.sync()  # launched; nothing is waited for
    return torch.cat(tokens, dim=1)


def main(arguments: list[str] | None = None) -> tuple[list[list[int]], int]:
    """Generates; the tokens, and how many programs were compiled."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", help="a folder")
    parser.add_argument("--batch-size", type=int, default=2)
    parser.add_argument("--length", type=int, default=16, help="of the prompt")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--growing", action="store_true")
    options = parser.parse_args(arguments)

    torch.manual_seed(0)
    device = torch_xla.device()
    model = LlamaForCausalLM.from_pretrained(options.model) if options.model else small_llama()
    model = model.to(device).eval()
    prompt = torch.randint(model.config.vocab_size, (options.batch_size, options.length))
    prompt = prompt.to(device)
    torch_xla.sync()
    before = metrics.counter_value("UncachedCompile") or 0
    start = time.perf_counter()
    tokens = generate(model, prompt, options.tokens, options.growing).tolist()
    seconds = time.perf_counter() - start
    compiled = (metrics.counter_value("UncachedCompile") or 0) - before
    print(tokens[0])
    print(f"{options.tokens} tokens in {seconds:.1f} s, {compiled} programs compiled")
    return tokens, compiled


if __name__ == "__main__":
    main()
