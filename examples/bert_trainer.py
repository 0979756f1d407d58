"""Fine-tunes a BERT with Hugging Face's `Trainer`, which finds the xla device by itself.

    pip install transformers accelerate
    python examples/bert_trainer.py                    a small model, from random numbers
    python examples/bert_trainer.py --model DIR        one that was saved by `save_pretrained`

The task is invented: is there more of one word than of another in the sentence? All sentences are
padded to one length, so that every step is the same program.
"""

import argparse
import tempfile

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

import torch_xla.debug.metrics as metrics

PAD, FIRST, SECOND, WORDS = 0, 1, 2, 40


class Sentences(Dataset):
    """Numbers of words, of several lengths, padded."""

    def __init__(self, count: int, length: int, seed: int) -> None:
        draw = torch.Generator().manual_seed(seed)
        self.tokens = torch.randint(3, WORDS, (count, length), generator=draw)
        self.labels = torch.randint(2, (count,), generator=draw)
        for tokens, label in zip(self.tokens, self.labels, strict=True):
            tokens[: length // 3] = SECOND if label else FIRST
            tokens[:] = tokens[torch.randperm(length, generator=draw)]
            tokens[length - int(torch.randint(length // 4, (1,), generator=draw)) :] = PAD

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = self.tokens[index]
        return {
            "input_ids": tokens,
            "attention_mask": (tokens != PAD).long(),
            "labels": self.labels[index],
        }


def main(arguments: list[str] | None = None) -> float:
    """Trains; the share of sentences of the test that it gets right."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", help="a folder")
    parser.add_argument("--sentences", type=int, default=1024)
    parser.add_argument("--length", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--width", type=int, default=64)
    options = parser.parse_args(arguments)

    torch.manual_seed(0)
    if options.model:
        model = BertForSequenceClassification.from_pretrained(options.model)
    else:
        config = BertConfig(
            vocab_size=WORDS,
            hidden_size=options.width,
            num_hidden_layers=options.layers,
            num_attention_heads=4,
            intermediate_size=2 * options.width,
            max_position_embeddings=options.length,
        )
        model = BertForSequenceClassification(config)
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            model=model,
            args=TrainingArguments(
                output_dir=folder,
                num_train_epochs=options.epochs,
                per_device_train_batch_size=32,
                per_device_eval_batch_size=32,
                learning_rate=1e-3,
                logging_steps=20,
                save_strategy="no",
                report_to=[],
                disable_tqdm=True,
            ),
            train_dataset=Sentences(options.sentences, options.length, seed=1),
            eval_dataset=Sentences(128, options.length, seed=2),
            compute_metrics=lambda p: {"right": float((p[0].argmax(-1) == p[1]).mean())},
        )
        trainer.train()
        share = trainer.evaluate()["eval_right"]
    print(f"on {trainer.args.device}: {100 * share:.1f}% right")
    print(f"compiled {metrics.counter_value('UncachedCompile') or 0} programs")
    return share


if __name__ == "__main__":
    main()
