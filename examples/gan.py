"""Trains two networks against each other: one draws digits, the other tells them from real ones.

    pip install scikit-learn
    python examples/gan.py
    python examples/gan.py --picture digits.pgm        writes 64 drawn digits as an image

Both updates are one program: one barrier for the two of them. What the generator draws stays on the
device.
"""

import argparse
import pathlib

import torch
from sklearn.datasets import load_digits
from torch import nn

import torch_xla
import torch_xla.debug.metrics as metrics

NOISE = 16


def networks(width: int) -> tuple[nn.Module, nn.Module]:
    """Who draws images of 8x8 out of noise, and who judges them."""
    draws = nn.Sequential(
        *(nn.Linear(NOISE, 4 * width), nn.Unflatten(1, (width, 2, 2)), nn.ReLU()),
        *(nn.ConvTranspose2d(width, width, 4, 2, 1), nn.BatchNorm2d(width), nn.ReLU()),
        *(nn.ConvTranspose2d(width, 1, 4, 2, 1), nn.Tanh()),
    )
    judges = nn.Sequential(
        *(nn.Conv2d(1, width, 4, 2, 1), nn.LeakyReLU(0.2)),
        *(nn.Conv2d(width, width, 4, 2, 1), nn.LeakyReLU(0.2)),
        *(nn.Flatten(), nn.Linear(4 * width, 1), nn.Flatten(0)),
    )
    return draws, judges


def main(arguments: list[str] | None = None) -> tuple[float, float]:
    """Trains; how far the mean drawn image is from the mean real one, before and after."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--picture", type=pathlib.Path)
    options = parser.parse_args(arguments)

    torch.manual_seed(0)
    device = torch_xla.device()
    real = (torch.tensor(load_digits().images, dtype=torch.float32)[:, None] / 8 - 1).to(device)
    draws, judges = (network.to(device) for network in networks(options.width))
    of_draws = torch.optim.Adam(draws.parameters(), lr=1e-3, betas=(0.5, 0.999))
    of_judges = torch.optim.Adam(judges.parameters(), lr=1e-3, betas=(0.5, 0.999))

    def distance() -> float:
        with torch.no_grad():
            drawn = draws(torch.randn(256, NOISE, device=device))
            return (drawn.mean(0) - real.mean(0)).abs().mean().item()

    before = distance()
    softplus = nn.functional.softplus
    for step in range(1, options.steps + 1):
        rows = torch.randint(len(real), (options.batch_size,)).to(device)
        drawn = draws(torch.randn(options.batch_size, NOISE, device=device))
        judged = softplus(-judges(real[rows])).mean() + softplus(judges(drawn.detach())).mean()
        of_judges.zero_grad()
        judged.backward()
        of_judges.step()
        fooled = softplus(-judges(drawn)).mean()
        of_draws.zero_grad()
        fooled.backward()
        of_draws.step()
        torch_xla.sync()
        if step % 200 == 0:
            print(f"step {step}: {judged.item():.3f} judging, {fooled.item():.3f} drawing")
    after = distance()
    print(f"mean image off by {before:.3f} at first, {after:.3f} at the end")
    print(f"compiled {metrics.counter_value('UncachedCompile') or 0} programs")
    if options.picture:
        with torch.no_grad():
            drawn = draws(torch.randn(64, NOISE, device=device)).cpu()
        image = ((drawn.view(8, 8, 8, 8).permute(0, 2, 1, 3).reshape(64, 64) + 1) * 127.5).byte()
        options.picture.write_bytes(b"P5 64 64 255\n" + image.numpy().tobytes())
    return before, after


if __name__ == "__main__":
    main()
