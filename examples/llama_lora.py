"""Fine-tunes a Llama with LoRA: Hugging Face's PEFT puts small matrices beside the large ones, and
only those are trained.

    pip install transformers peft
    python examples/llama_lora.py                      a small model, from random numbers
    python examples/llama_lora.py --model DIR          one that was saved by `save_pretrained`
    python examples/llama_lora.py --out DIR            keeps the adapter, a few kilobytes

Also shown: `gradient_checkpointing_enable()`, which computes layers again in place of keeping their
values.
"""

import argparse

import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

import torch_xla
import torch_xla.debug.metrics as metrics


def small_llama(width: int, layers: int) -> LlamaForCausalLM:
    config = LlamaConfig(
        vocab_size=128,
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        use_cache=False,
    )
    return LlamaForCausalLM(config)


def main(arguments: list[str] | None = None) -> list[float]:
    """Trains; the first and the last loss."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", help="a folder")
    parser.add_argument("--out", help="a folder for the adapter")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--length", type=int, default=32)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--checkpoint", action="store_true", help="compute layers again")
    options = parser.parse_args(arguments)

    torch.manual_seed(0)
    if options.model:
        base = LlamaForCausalLM.from_pretrained(options.model)
    else:
        base = small_llama(options.width, options.layers)
    lora = LoraConfig(
        r=options.rank,
        lora_alpha=2 * options.rank,
        target_modules=["q_proj", "v_proj", "up_proj", "down_proj"],
        task_type="CAUSAL_LM",
    )
    device = torch_xla.device()
    model = get_peft_model(base, lora).to(device).train()
    model.print_trainable_parameters()
    if options.checkpoint:
        model.enable_input_require_grads()
        model.gradient_checkpointing_enable()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-2)

    # What is to be learnt: there are eight numbers, and each is followed by itself plus three.
    losses = []
    for _ in range(options.steps):
        starts = torch.randint(8, (options.batch_size, 1))
        batch = ((starts + 3 * torch.arange(options.length)) % 8).to(device)
        loss = model(input_ids=batch, labels=batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
        torch_xla.sync()
    first, last = torch.stack([losses[0], losses[-1]]).tolist()
    print(f"loss {first:.3f} to {last:.3f} in {options.steps} steps")
    print(f"compiled {metrics.counter_value('UncachedCompile') or 0} programs")
    if options.out:
        model.save_pretrained(options.out)
    return [first, last]


if __name__ == "__main__":
    main()
