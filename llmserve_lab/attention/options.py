"""What a layer asks of attention beyond queries, keys and values."""

from __future__ import annotations

from typing import Any

# transformers' name of each: ours
NAMES = {"sliding_window": "window", "softcap": "softcap", "s_aux": "sinks"}
FEATURES = frozenset(NAMES.values())
# These change nothing here: rotary positions are applied before, outputs are not attention's.
WITHOUT_EFFECT = frozenset(
    {
        "position_ids", "cache_position", "use_cache",
        "output_attentions", "output_hidden_states", "output_router_logits",
    }
)  # fmt: skip


class UnsupportedAttentionError(NotImplementedError):
    """The model asks for a kind of attention that this engine would compute wrongly."""


def refuse_dropout(dropout: float) -> None:
    """Raise UnsupportedAttentionError where some attention is left out at random."""
    if dropout:
        raise UnsupportedAttentionError(
            f"This model is in training mode, with a dropout of {dropout}; call model.eval()."
        )


def read_options(options: dict[str, Any], dropout: float = 0.0) -> dict[str, Any]:
    """The options that are set, as keyword arguments of `reference.paged_attention`.

    Raises:
        UnsupportedAttentionError: one that is not known here.
    """
    refuse_dropout(dropout)
    given = {k: v for k, v in options.items() if v is not None and k not in WITHOUT_EFFECT}
    if given.pop("is_causal", True) is False:
        given["is_causal=False"] = True
    unknown = sorted(given.keys() - NAMES.keys())
    if unknown:
        raise UnsupportedAttentionError(
            f"This model's attention uses {', '.join(unknown)}, which this engine does not compute."
        )
    return {NAMES[name]: value for name, value in given.items()}
