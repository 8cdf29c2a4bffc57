"""W8A8: weights and activations in 8 bits, multiplied and added up as integers.

Weights have one scale per output channel, found once; activations one per token, found as they come
("dynamic"). Both symmetric, without a zero point. Source: Dettmers et al. 2022 (LLM.int8()),
section 2.1 and vector-wise quantization in 3.1; Yao et al. 2022 (ZeroQuant), section 4.1.
"""

from __future__ import annotations

from typing import Any

import torch

from llmserve_lab.models import loops

LARGEST = 127  # of a code; -128 is left out, so that codes are symmetric
SMALLEST = 1e-30  # magnitude that is told from zero
EXACT_COLUMNS = 2**24 // LARGEST**2  # so many products of codes add up exactly in float32
CUDA_ROWS, CUDA_MULTIPLE = 17, 8  # what torch._int_mm asks for on a GPU: at least, a multiple of


class Int8Linear(torch.nn.Module):
    """A linear layer in 8 bits. weight: (out, in) int8; scale: (out,) float32, of one code; bias:
    (out,) or None. Memory: a quarter of float32."""

    def __init__(
        self, weight: torch.Tensor, scale: torch.Tensor, bias: torch.Tensor | None = None
    ) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(weight, requires_grad=False)
        self.scale = torch.nn.Parameter(scale, requires_grad=False)
        self.bias = None if bias is None else torch.nn.Parameter(bias, requires_grad=False)
        self.out_features, self.in_features = weight.shape

    @classmethod
    def of(cls, layer: torch.nn.Linear) -> Int8Linear:
        """Round the weights of a layer to the nearest codes."""
        codes, scale = quantized(layer.weight.detach())
        bias = None if layer.bias is None else layer.bias.detach()
        return cls(codes, scale[:, 0], bias)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """(..., in) to (..., out), of the inputs' dtype."""
        return int8_linear(inputs, self.weight, self.scale, self.bias)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}"


def int8_linear(
    inputs: torch.Tensor,
    weight: torch.Tensor,
    scale: torch.Tensor,
    bias: torch.Tensor | None = None,
) -> torch.Tensor:
    """inputs: (..., in), any float dtype. The integer sums are exact; rounding is that of the
    codes, and of one float32 product by the scales. So a row comes out the same, bit by bit, alone
    or among others, though few rows on a CPU may run through a loop of our own."""
    rows = inputs.reshape(-1, inputs.shape[-1])
    if loops.takes_int8(rows, weight):
        found = loops.int8_linear(rows, weight, scale, bias)
        return found.view(*inputs.shape[:-1], len(weight))
    if loops.surround_int8(weight):
        codes, token_scale = loops.int8_codes(rows)
        outputs = loops.scaled(integer_product(codes, weight), token_scale, scale, bias)
    else:
        outputs = _product(rows, weight, scale, bias)
    return outputs.to(inputs.dtype).view(*inputs.shape[:-1], len(weight))


def _product(
    rows: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor, bias: torch.Tensor | None
) -> torch.Tensor:
    """The layer written out in torch: (rows, in) to (rows, out), float32."""
    codes, token_scale = quantized(rows)
    outputs = (integer_product(codes, weight) * token_scale).mul_(scale)
    return outputs if bias is None else outputs + bias


def quantized(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(rows, n) to int8 codes of the same shape and one scale per row, (rows, 1) float32: codes x
    scale is at most half a scale from what was given."""
    rows = rows.float()
    largest = torch.linalg.vector_norm(rows, float("inf"), -1, keepdim=True)
    scale = largest.clamp_(min=SMALLEST).div_(LARGEST)  # zeros have one too
    return (rows / scale).round_().to(torch.int8), scale


def integer_product(inputs: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """inputs (rows, in) and weight (out, in), int8: (rows, out) int32, exact."""
    if inputs.shape[1] == 1:  # which torch 2.13's _int_mm gets wrong on a CPU
        return inputs.int() * weight.int().t()
    if inputs.device.type == "cpu" and not loops.has_int8_products():
        return _float_product(inputs, weight)
    if inputs.device.type != "cuda":
        return torch._int_mm(inputs, weight.t())
    if any(size % CUDA_MULTIPLE for size in weight.shape):
        return (inputs.double() @ weight.double().t()).to(torch.int32)  # exact up to 2^53
    missing = max(0, CUDA_ROWS - len(inputs))
    padded = torch.nn.functional.pad(inputs, (0, 0, 0, missing))
    return torch._int_mm(padded, weight.t())[: len(inputs)]


def _float_product(inputs: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """The same through float32, which holds every sum of `EXACT_COLUMNS` products exactly."""
    parts = (codes.float().split(EXACT_COLUMNS, 1) for codes in (inputs, weight))
    sums = [(rows @ columns.t()).to(torch.int32) for rows, columns in zip(*parts, strict=True)]
    return torch.stack(sums).sum(0, dtype=torch.int32) if len(sums) > 1 else sums[0]


def linears_to_int8(model: Any) -> int:
    """Replace every `nn.Linear` of a transformers model but its output layer. Returns how many.

    Raises:
        ValueError: there is none.
    """
    output = model.get_output_embeddings()
    found = [
        (parent, name, layer)
        for parent in model.modules()
        for name, layer in parent.named_children()
        if type(layer) is torch.nn.Linear and layer is not output
    ]
    if not found:
        raise ValueError(f"{type(model).__name__} has no torch.nn.Linear to compute in int8.")
    for parent, name, layer in found:
        setattr(parent, name, Int8Linear.of(layer))
    loops.prepare_int8()
    return len(found)
