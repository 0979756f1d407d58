"""Trains a vision transformer on scikit-learn's handwritten digits.

    pip install transformers scikit-learn
    python examples/vit.py                    Hugging Face's ViT
    python examples/vit.py --timm NAME        one of timm's, as "vit_tiny_patch16_224"

timm imports torchvision, which must be built for the PyTorch that is installed; nothing else of
timm is special here.
"""

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn

import torch_xla
import torch_xla.debug.metrics as metrics

SIZE = 32


def digits() -> tuple[torch.Tensor, torch.Tensor]:
    """1,797 images of three equal channels, and what they are."""
    raw = load_digits()
    images = torch.tensor(raw.images, dtype=torch.float32)[:, None] / 8 - 1
    images = nn.functional.interpolate(images, size=(SIZE, SIZE), mode="bilinear")
    return images.expand(-1, 3, -1, -1), torch.tensor(raw.target)


class HuggingFaceViT(nn.Module):
    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        from transformers import ViTConfig, ViTForImageClassification

        config = ViTConfig(
            image_size=SIZE,
            patch_size=8,
            hidden_size=width,
            num_hidden_layers=layers,
            num_attention_heads=4,
            intermediate_size=2 * width,
            num_labels=10,
        )
        self.model = ViTForImageClassification(config)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.model(pixel_values=images).logits


def main(arguments: list[str] | None = None) -> float:
    """Trains; the share of the test's digits that it gets right."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--timm", metavar="NAME")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--lr", type=float, default=1e-3)
    options = parser.parse_args(arguments)
    torch.manual_seed(0)
    device = torch_xla.device()
    if options.timm:
        import timm

        model: nn.Module = timm.create_model(options.timm, num_classes=10, img_size=SIZE)
    else:
        model = HuggingFaceViT(options.width, options.layers)
    model.to(device)
    # The whole set is uploaded once; batches are gathered on the device.
    images, labels = (t.to(device) for t in digits())
    count = len(labels)
    order = torch.randperm(count)
    test, train = order[: count // 5].to(device), order[count // 5 :]
    optimizer = torch.optim.AdamW(model.parameters(), options.lr)
    batch = options.batch_size
    for epoch in range(1, options.epochs + 1):
        total = torch.zeros((), device=device)
        shuffled = train[torch.randperm(len(train))].to(device)
        torch_xla.sync()
        for rows in shuffled[: len(train) // batch * batch].view(-1, batch):
            loss = nn.functional.cross_entropy(model(images[rows]), labels[rows])
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            total += loss.detach()
            torch_xla.sync()
        print(f"epoch {epoch}: loss {total.item() / (len(train) // batch):.3f}")
    with torch.no_grad():
        share = (model.eval()(images[test]).argmax(-1) == labels[test]).float().mean().item()
    print(f"{100 * share:.1f}% right")
    print(f"compiled {metrics.counter_value('UncachedCompile') or 0} programs")
    return share


if __name__ == "__main__":
    main()
