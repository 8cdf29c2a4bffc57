"""Decoder layers that torch.compile has turned into code of their own.

Attention stays as it is, between two compiled parts: it reads the KV cache through block tables,
which a compiler has nothing to add to. What surrounds it (norms, rotation, activation, residuals)
becomes a few loops or kernels, and matrix products are torch's. All layers of a model have the same
code, so two parts are compiled, each for one token and for any number of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from typing import Any

import torch

from llmserve_lab.models.decoder import FAMILIES, Attend, Decoder, DecoderLayer, Rotation, supports
from llmserve_lab.models.int8_linear import Int8Linear

BACKEND = "inductor"
TRIAL_TOKENS = (2, 1)  # a size of 1 is compiled apart from all others
Part = Callable[..., Any]


class CompileError(RuntimeError):
    """torch.compile does not work here."""


@dataclass(frozen=True, slots=True)
class CompiledLayer:
    """A layer whose `before` and `after` attention are compiled."""

    layer: Any  # a DecoderLayer
    before: Part
    after: Part

    def __call__(self, hidden: torch.Tensor, turn: Rotation, attend: Attend) -> torch.Tensor:
        """As `DecoderLayer`."""
        heads = self.before(self.layer, hidden, turn)
        attended = attend(self.layer.attention, *heads)
        rows = attended.reshape(-1).view(len(hidden), -1)  # of one layout, so that one variant does
        return self.after(self.layer, hidden, rows)


def require_compilable(model: Any) -> None:
    """Raise unless `compile_layers` can compile the layers of this model.

    Raises:
        ValueError: it runs through transformers' modules, or in 8 bits.
    """
    if not supports(model):
        raise ValueError(
            f"compile=True works for plain {', '.join(FAMILIES)} models and this is a "
            f"{type(model).__name__} that runs through transformers' modules: leave it out."
        )
    if any(isinstance(module, Int8Linear) for module in model.modules()):
        raise ValueError(
            "compile=True works for layers in the model's dtype, and those in 8 bits have kernels "
            "of their own: leave out one of the two."
        )


def compile_layers(decoder: Decoder) -> None:
    """Have the decoder run compiled layers from here on; they are compiled now. Takes seconds to
    a minute.

    Raises:
        CompileError: there is no compiler that torch could use.
    """
    before, after = _compiled(DecoderLayer.before), _compiled(DecoderLayer.after)
    layers = [CompiledLayer(layer, before, after) for layer in decoder.layers]
    try:
        for tokens in TRIAL_TOKENS:
            _try(decoder, layers[0], tokens)
    except Exception as error:  # of many kinds: Python, Triton, the C++ compiler
        reason = " ".join(str(error).split()) or type(error).__name__
        raise CompileError(
            f"torch.compile does not work here ({reason:.200}). It needs a C++ compiler that "
            "torch finds, such as g++, and on a GPU also triton; leave out compile=True to do "
            "without it."
        ) from error
    decoder.layers = layers


def _compiled(part: Part) -> Part:
    """Anew for each decoder where torch can: else all of them share one list of compiled variants,
    which is short."""
    apart = {"isolate_recompiles": True} if _has_isolation() else {}
    return torch.compile(part, backend=BACKEND, **apart)  # type: ignore[call-overload, no-any-return]


def _has_isolation() -> bool:
    return "isolate_recompiles" in signature(torch.compile).parameters


def _try(decoder: Decoder, layer: CompiledLayer, tokens: int) -> None:
    """Compile for so many tokens, by running them."""
    weight = decoder.embeddings.weight
    with torch.inference_mode():
        hidden = torch.zeros((tokens, weight.shape[1]), dtype=weight.dtype, device=weight.device)
        positions = torch.arange(tokens, device=weight.device)
        turn = Rotation(*decoder.rotary(hidden, positions[None]))
        for tensor in (hidden, turn.cos, turn.sin):
            _mark(tensor)
        queries = layer.before(layer.layer, hidden, turn)[0]
        attended = torch.empty(queries.shape, dtype=weight.dtype, device=weight.device).flatten(1)
        _mark(attended)
        layer.after(layer.layer, hidden, attended)


def _mark(tensor: torch.Tensor) -> None:
    """As one whose first dimension is not always this long; 1 is a case of its own."""
    if len(tensor) > 1:
        torch._dynamo.mark_dynamic(tensor, 0)
