"""`GRU`: PyTorch's GRU as one loop of the program, whose size does not grow with the sequence."""

from __future__ import annotations

import torch

from torch_xla.experimental.scan import scan

_Step = tuple[torch.Tensor, torch.Tensor]


class GRU(torch.nn.GRU):
    """As `torch.nn.GRU`, with its arguments, parameters and results.

    In one direction, on batched sequences of one length.
    """

    def forward(  # type: ignore[override]
        self, input: torch.Tensor, hx: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if not isinstance(input, torch.Tensor) or input.dim() != 3:
            raise ValueError("GRU: expected a batch of sequences, as a tensor of 3 dimensions")
        if self.bidirectional:
            raise NotImplementedError("GRU: bidirectional is not supported; use torch.nn.GRU")
        sequence = input.transpose(0, 1) if self.batch_first else input
        if hx is None:
            sizes = (self.num_layers, sequence.shape[1], self.hidden_size)
            hx = torch.zeros(sizes, dtype=input.dtype, device=input.device)
        last = []
        for layer in range(self.num_layers):
            if layer > 0 and self.dropout > 0:
                sequence = torch.nn.functional.dropout(sequence, self.dropout, self.training)
            hidden, sequence = self._layer(layer, sequence, hx[layer])
            last.append(hidden)
        output = sequence.transpose(0, 1) if self.batch_first else sequence
        return output, torch.stack(last)

    def _layer(self, layer: int, sequence: torch.Tensor, hidden: torch.Tensor) -> _Step:
        weight_ih, weight_hh, *biases = self.all_weights[layer]
        bias_ih, bias_hh = biases or (None, None)
        # What does not depend on the hidden state is one product for all turns.
        inputs = torch.nn.functional.linear(sequence, weight_ih, bias_ih)

        def turn(before: torch.Tensor, x: torch.Tensor) -> _Step:
            gates = torch.nn.functional.linear(before, weight_hh, bias_hh)
            reset_x, update_x, new_x = x.chunk(3, dim=-1)
            reset_h, update_h, new_h = gates.chunk(3, dim=-1)
            reset = torch.sigmoid(reset_x + reset_h)
            update = torch.sigmoid(update_x + update_h)
            new = torch.tanh(new_x + reset * new_h)
            after = new + update * (before - new)
            return after, after

        return scan(turn, hidden, inputs)
