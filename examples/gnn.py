"""Trains a graph network on an invented graph of communities, knowing the community of a few nodes.

    python examples/gnn.py                             nothing beside torch

Messages along edges are `index_add`, which is one operation of the program whatever the graph: only
the number of edges is part of it. Graphs of other sizes are padded to a few numbers of edges, with
edges from and to a node that nobody reads.
"""

import argparse

import torch
from torch import nn

import torch_xla
import torch_xla.debug.metrics as metrics


def communities(nodes: int, kinds: int, edges: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The community of each node, and the edges as [2, edges], most of them inside of one."""
    kind = torch.arange(nodes) % kinds
    start = torch.randint(nodes, (edges,))
    near = start + kinds * torch.randint(1, nodes // kinds, (edges,))
    end = torch.where(torch.rand(edges) < 0.85, near % nodes, torch.randint(nodes, (edges,)))
    both = torch.stack([torch.cat([start, end]), torch.cat([end, start])])
    return kind, both


class Convolution(nn.Module):
    """Each node becomes a function of itself and of the mean of its neighbours."""

    def __init__(self, fan_in: int, fan_out: int) -> None:
        super().__init__()
        self.own = nn.Linear(fan_in, fan_out)
        self.others = nn.Linear(fan_in, fan_out, bias=False)

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        start, end = edges
        total = torch.zeros_like(x).index_add(0, end, x[start])
        ones = torch.ones_like(end, dtype=x.dtype)
        degree = torch.zeros_like(x[:, 0]).index_add(0, end, ones).clamp(min=1)
        return self.own(x) + self.others(total / degree[:, None])


class Network(nn.Module):
    def __init__(self, fan_in: int, width: int, kinds: int) -> None:
        super().__init__()
        self.first = Convolution(fan_in, width)
        self.second = Convolution(width, kinds)

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x, edges).relu(), edges)


def main(arguments: list[str] | None = None) -> float:
    """Trains; the share of the other nodes whose community it finds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=600)
    parser.add_argument("--edges", type=int, default=4000)
    parser.add_argument("--kinds", type=int, default=4)
    parser.add_argument("--known", type=float, default=0.1, help="share of nodes")
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args(arguments)

    torch.manual_seed(0)
    device = torch_xla.device()
    kind, edges = communities(options.nodes, options.kinds, options.edges)
    is_known = torch.rand(options.nodes) < options.known
    features = torch.randn(options.nodes, 16)
    features[:, : options.kinds] += nn.functional.one_hot(kind)  # less than the noise
    kind, edges, is_known, features = (t.to(device) for t in (kind, edges, is_known, features))

    model = Network(16, 32, options.kinds).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    for step in range(1, options.steps + 1):
        loss = nn.functional.cross_entropy(model(features, edges), kind, reduction="none")
        # A mean over a mask, not over `loss[is_known]`: how many there are would be read.
        loss = (loss * is_known).sum() / is_known.sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        torch_xla.sync()
        if step % 50 == 0:
            print(f"step {step}: loss {loss.item():.3f}")
    with torch.no_grad():
        is_right = (model(features, edges).argmax(-1) == kind) & ~is_known
    share = (is_right.sum() / (~is_known).sum()).item()
    print(f"{100 * share:.1f}% right")
    print(f"compiled {metrics.counter_value('UncachedCompile') or 0} programs")
    return share


if __name__ == "__main__":
    main()
