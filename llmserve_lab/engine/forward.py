"""One forward pass: by the lean decoder where it knows the model, else by transformers' own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from llmserve_lab.attention import BatchMetadata, paged
from llmserve_lab.attention.backend import Attention
from llmserve_lab.attention.options import refuse_dropout

if TYPE_CHECKING:
    import torch

    from llmserve_lab.models.decoder import Decoder
    from llmserve_lab.models.fingerprint import Fingerprint


class Forward:
    """Runs flattened batches through a model. The model may change meanwhile, by a hook or another
    layer: it is looked at again in every step. compiled: by torch.compile, see `models.compiled`.

    Raises:
        ValueError, CompileError: it cannot be compiled.
    """

    def __init__(self, model: Any, compiled: bool = False) -> None:
        self.model, self._compiled = model, compiled
        if compiled:
            from llmserve_lab.models.compiled import require_compilable

            require_compilable(model)
        self._seen: Fingerprint | None = None
        self._decoder: Decoder | None = None
        self.decoder()  # made now, not in the first step

    def __call__(
        self,
        tokens: torch.Tensor,
        positions: torch.Tensor,
        rows: torch.Tensor,
        batch: BatchMetadata,
        backend: Attention,
    ) -> torch.Tensor:
        """tokens, positions: (tokens,) int64; rows: those whose logits are wanted. Returns (rows,
        vocabulary)."""
        decoder = self.decoder()
        if decoder is not None:
            return decoder(tokens, positions, rows, _Attend(batch, backend))
        with paged(self.model, batch, backend):
            output = self.model(
                input_ids=tokens[None],
                position_ids=positions[None],
                logits_to_keep=rows,
                use_cache=False,
            )
        return output.logits[0]

    def decoder(self) -> Decoder | None:
        """The lean decoder of the model as it is now; None where transformers' modules run."""
        from llmserve_lab.models.fingerprint import Fingerprint

        if self._seen is None or not self._seen.holds():
            self._decoder = self._make_decoder()
            self._seen = Fingerprint(self.model)
        return self._decoder

    def _make_decoder(self) -> Decoder | None:
        from llmserve_lab.models.decoder import Decoder, supports

        if not supports(self.model):
            return None
        decoder = Decoder(self.model)
        if self._compiled:
            from llmserve_lab.models.compiled import compile_layers

            compile_layers(decoder)
        return decoder


@dataclass(frozen=True, slots=True)
class _Attend:
    """The paged attention of one batch, as the decoder's layers call it."""

    batch: BatchMetadata
    backend: Attention

    def __call__(
        self, module: Any, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> torch.Tensor:
        """queries: (tokens, heads, dim); returns the same shape."""
        if module.training:
            refuse_dropout(module.attention_dropout)
        index, scaling, window = module.layer_idx, module.scaling, _window(module)
        options = {} if window is None else {"window": window}
        return self.backend(index, queries, keys, values, self.batch, scaling, **options)


def _window(attention: Any) -> int | None:
    """The layer's sliding window: kept by the layer, or, in Mistral, by the config alone."""
    if hasattr(attention, "sliding_window"):
        return attention.sliding_window
    return getattr(attention.config, "sliding_window", None)
