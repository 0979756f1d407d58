"""Transcribes a sound with Hugging Face's Whisper.

    pip install transformers
    python examples/whisper.py                         a small model, from random numbers: no words
    python examples/whisper.py --model DIR --sound FILE.wav       16,000 samples a second, mono

The encoder is one program. The decoder gets as many tokens as it may ever write from the start, and
what is behind the last one is ignored, so that it is one program too, whichever the token.
"""

import argparse
import pathlib
import wave

import numpy
import torch
from transformers import WhisperConfig, WhisperFeatureExtractor, WhisperForConditionalGeneration

import torch_xla
import torch_xla.debug.metrics as metrics

RATE = 16_000


def read_sound(path: pathlib.Path | None, seconds: int) -> numpy.ndarray:
    """The samples of a file, or of two tones."""
    if path is None:
        time = numpy.arange(seconds * RATE) / RATE
        return (numpy.sin(2760 * time) + numpy.sin(5520 * time * time)).astype("float32") / 2
    with wave.open(str(path)) as file:
        if file.getframerate() != RATE or file.getnchannels() != 1 or file.getsampwidth() != 2:
            raise ValueError(f"{path}: expected {RATE} samples a second of 16 bits, mono")
        return numpy.frombuffer(file.readframes(file.getnframes()), "<i2").astype("float32") / 2**15


def small_whisper(seconds: int) -> WhisperForConditionalGeneration:
    config = WhisperConfig(
        vocab_size=64,
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        max_source_positions=50 * seconds,
        max_target_positions=64,
        **{f"{name}_token_id": 0 for name in ("pad", "bos", "eos", "decoder_start")},
    )
    return WhisperForConditionalGeneration(config)


@torch.no_grad()
def transcribe(
    model: WhisperForConditionalGeneration, features: torch.Tensor, count: int
) -> list[int]:
    """The most likely tokens, `count` of them."""
    device = features.device
    states = model.model.encoder(features)
    tokens = torch.zeros(1, count + 1, dtype=torch.int64, device=device)
    tokens[0, 0] = model.config.decoder_start_token_id
    position = torch.zeros(1, dtype=torch.int64, device=device)  # data, not part of the program
    for _ in range(count):
        logits = model(decoder_input_ids=tokens, encoder_outputs=(states.last_hidden_state,)).logits
        best = logits.argmax(-1)
        tokens = tokens.index_copy(1, position + 1, best.index_select(1, position))
        position = position + 1
        torch_xla.sync()
    return tokens[0, 1:].tolist()


def main(arguments: list[str] | None = None) -> tuple[list[int], int]:
    """Transcribes; the tokens, and how many programs were compiled."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", help="a folder, with its processor")
    parser.add_argument("--sound", type=pathlib.Path)
    parser.add_argument("--tokens", type=int, default=24)
    options = parser.parse_args(arguments)
    torch.manual_seed(0)
    if options.model:
        model = WhisperForConditionalGeneration.from_pretrained(options.model)
        extract = WhisperFeatureExtractor.from_pretrained(options.model)
    else:
        model = small_whisper(seconds=2)
        extract = WhisperFeatureExtractor(chunk_length=2)
    sound = read_sound(options.sound, seconds=2)
    features = extract(sound, sampling_rate=RATE, return_tensors="pt").input_features
    device = torch_xla.device()
    before = metrics.counter_value("UncachedCompile") or 0
    tokens = transcribe(model.to(device).eval(), features.to(device), options.tokens)
    compiled = (metrics.counter_value("UncachedCompile") or 0) - before
    if options.model:
        from transformers import WhisperTokenizer

        print(WhisperTokenizer.from_pretrained(options.model).decode(tokens))
    print(f"{len(tokens)} tokens {tokens}, {compiled} programs compiled")
    return tokens, compiled


if __name__ == "__main__":
    main()
