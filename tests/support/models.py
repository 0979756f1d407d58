"""The models that tests train and benchmarks time: an MLP, a CNN, ResNets, a GPT-2 and a BERT.

Small definitions of our own, with the layers and the wiring of the originals. Each is built on the
CPU from torch's random state; `tests/training/test_training.py` says what must hold for them.
"""

from __future__ import annotations

import dataclasses
import itertools

import torch
from torch import Tensor, nn


class MLP(nn.Module):
    """Fully connected layers with ReLU between them."""

    def __init__(self, sizes: tuple[int, ...] = (784, 512, 10)) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for fan_in, fan_out in itertools.pairwise(sizes):
            layers += [nn.Linear(fan_in, fan_out), nn.ReLU()]
        self.layers = nn.Sequential(*layers[:-1])

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x.flatten(1))


class MnistCNN(nn.Module):
    """Two convolutions with pooling, two linear layers, log-probabilities out."""

    def __init__(self, channels: tuple[int, int] = (32, 64), dropout: float = 0.0) -> None:
        super().__init__()
        first, second = channels
        self.conv1 = nn.Conv2d(1, first, 3)
        self.conv2 = nn.Conv2d(first, second, 3)
        self.fc1 = nn.Linear(second * 5 * 5, 128)
        self.fc2 = nn.Linear(128, 10)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.max_pool2d(nn.functional.relu(self.conv1(x)), 2)
        x = nn.functional.max_pool2d(nn.functional.relu(self.conv2(x)), 2)
        x = self.dropout(nn.functional.relu(self.fc1(x.flatten(1))))
        return nn.functional.log_softmax(self.fc2(x), dim=1)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut."""

    expansion = 1

    def __init__(self, fan_in: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(fan_in, width, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.shortcut = _shortcut(fan_in, width, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = nn.functional.relu(self.bn1(self.conv1(x)), inplace=True)
        y = self.bn2(self.conv2(y))
        y += self.shortcut(x)
        return nn.functional.relu(y, inplace=True)


class Bottleneck(nn.Module):
    """A 3x3 convolution between two 1x1 ones, beside a shortcut."""

    expansion = 4

    def __init__(self, fan_in: int, width: int, stride: int) -> None:
        super().__init__()
        fan_out = width * self.expansion
        self.conv1 = nn.Conv2d(fan_in, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, fan_out, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(fan_out)
        self.shortcut = _shortcut(fan_in, fan_out, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = nn.functional.relu(self.bn1(self.conv1(x)), inplace=True)
        y = nn.functional.relu(self.bn2(self.conv2(y)), inplace=True)
        y = self.bn3(self.conv3(y))
        y += self.shortcut(x)
        return nn.functional.relu(y, inplace=True)


def _shortcut(fan_in: int, fan_out: int, stride: int) -> nn.Module:
    if stride == 1 and fan_in == fan_out:
        return nn.Identity()
    return nn.Sequential(nn.Conv2d(fan_in, fan_out, 1, stride, bias=False), nn.BatchNorm2d(fan_out))


class ResNet(nn.Module):
    """A residual network in four stages, each half as large and twice as wide as the last."""

    def __init__(
        self,
        block: type[BasicBlock] | type[Bottleneck] = BasicBlock,
        depths: tuple[int, ...] = (2, 2, 2, 2),
        width: int = 64,
        num_classes: int = 1000,
    ) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False)
        self.bn = nn.BatchNorm2d(width)
        self.pool = nn.MaxPool2d(3, stride=2, padding=1)
        stages = []
        fan_in = width
        for stage, depth in enumerate(depths):
            stage_width = width * 2**stage
            for i in range(depth):
                stages.append(block(fan_in, stage_width, 2 if stage > 0 and i == 0 else 1))
                fan_in = stage_width * block.expansion
        self.stages = nn.Sequential(*stages)
        self.head = nn.Linear(fan_in, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(nn.functional.relu(self.bn(self.conv(x)), inplace=True))
        x = nn.functional.adaptive_avg_pool2d(self.stages(x), 1)
        return self.head(x.flatten(1))


def resnet18(width: int = 64, num_classes: int = 1000) -> ResNet:
    return ResNet(BasicBlock, (2, 2, 2, 2), width, num_classes)


def resnet50(width: int = 64, num_classes: int = 1000) -> ResNet:
    return ResNet(Bottleneck, (3, 4, 6, 3), width, num_classes)


@dataclasses.dataclass(frozen=True)
class TransformerConfig:
    """The sizes of a GPT2 or a Bert."""

    num_layers: int = 2
    width: int = 32
    num_heads: int = 4
    vocabulary: int = 97
    max_length: int = 64
    dropout: float = 0.0


class Attention(nn.Module):
    """Multi-head self-attention; `is_causal` hides what comes later."""

    def __init__(self, config: TransformerConfig, is_causal: bool) -> None:
        super().__init__()
        self.num_heads = config.num_heads
        self.is_causal = is_causal
        self.dropout = config.dropout
        self.qkv = nn.Linear(config.width, 3 * config.width)
        self.out = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        batch, length, width = x.shape
        heads = (batch, length, self.num_heads, width // self.num_heads)
        q, k, v = (t.view(heads).transpose(1, 2) for t in self.qkv(x).split(width, dim=2))
        y = nn.functional.scaled_dot_product_attention(
            q,
            k,
            v,
            attn_mask=mask,
            dropout_p=self.dropout if self.training else 0.0,
            is_causal=self.is_causal,
        )
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class FeedForward(nn.Sequential):
    """Up to four times the width and back, with GELU between."""

    def __init__(self, config: TransformerConfig, approximate: str) -> None:
        super().__init__(
            nn.Linear(config.width, 4 * config.width),
            nn.GELU(approximate=approximate),
            nn.Linear(4 * config.width, config.width),
            nn.Dropout(config.dropout),
        )


class GPT2Block(nn.Module):
    """Layer norm before attention and feed-forward."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(config.width)
        self.attention = Attention(config, is_causal=True)
        self.norm2 = nn.LayerNorm(config.width)
        self.feed_forward = FeedForward(config, approximate="tanh")

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.feed_forward(self.norm2(x))


class GPT2(nn.Module):
    """A decoder whose head shares its weight with the token embedding."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.positions = nn.Embedding(config.max_length, config.width)
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.Sequential(*(GPT2Block(config) for _ in range(config.num_layers)))
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: Tensor) -> Tensor:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.dropout(self.tokens(tokens) + self.positions(positions))
        return self.head(self.norm(self.blocks(x)))


class BertLayer(nn.Module):
    """Layer norm after attention and feed-forward."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.attention = Attention(config, is_causal=False)
        self.norm1 = nn.LayerNorm(config.width, eps=1e-12)
        self.feed_forward = FeedForward(config, approximate="none")
        self.norm2 = nn.LayerNorm(config.width, eps=1e-12)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.norm1(x + self.attention(x, mask))
        return self.norm2(x + self.feed_forward(x))


class Bert(nn.Module):
    """An encoder that classifies a sequence by its first token; token 0 is padding."""

    def __init__(self, config: TransformerConfig, num_classes: int = 2) -> None:
        super().__init__()
        self.tokens = nn.Embedding(config.vocabulary, config.width, padding_idx=0)
        self.positions = nn.Embedding(config.max_length, config.width)
        self.segments = nn.Embedding(2, config.width)
        self.norm = nn.LayerNorm(config.width, eps=1e-12)
        self.dropout = nn.Dropout(config.dropout)
        self.layers = nn.ModuleList(BertLayer(config) for _ in range(config.num_layers))
        self.pooler = nn.Linear(config.width, config.width)
        self.classifier = nn.Linear(config.width, num_classes)

    def forward(self, tokens: Tensor, segments: Tensor) -> Tensor:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.tokens(tokens) + self.positions(positions) + self.segments(segments)
        x = self.dropout(self.norm(x))
        mask = (tokens != 0)[:, None, None, :]
        for layer in self.layers:
            x = layer(x, mask)
        return self.classifier(self.dropout(torch.tanh(self.pooler(x[:, 0]))))
