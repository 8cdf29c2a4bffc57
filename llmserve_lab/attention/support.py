"""Whether this engine serves a model exactly: found out when the engine is made, else refused."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from llmserve_lab.attention.options import UnsupportedAttentionError
from llmserve_lab.attention.survey import LayerCall, survey
from llmserve_lab.attention.trial import require_own_logits
from llmserve_lab.kv_cache import KVShape

INSTEAD = "call the model's own generate() instead"
TAKEN = ("input_ids", "position_ids", "logits_to_keep")  # by the model's forward
FEW_TOKENS = 8


def require_decoder(model: Any) -> None:
    """Raise unless it is a causal language model whose only state is keys and values.

    Raises:
        UnsupportedAttentionError: another kind of model.
        ValueError: it is in training mode.
    """
    name = type(model).__name__
    if model.training:
        raise ValueError(f"{name} is in training mode: call model.eval() first.")
    why = _why_no_decoder(model)
    if why:
        raise UnsupportedAttentionError(f"{name} {why}; {INSTEAD}.")


def _why_no_decoder(model: Any) -> str:
    config = model.config
    if config.is_encoder_decoder:
        return "is an encoder-decoder, and this engine serves decoder-only models"
    if _keeps_recurrent_state(model):
        return "keeps a recurrent state, which a KV cache cannot hold"
    if model.get_output_embeddings() is None:
        return "has no output layer over the vocabulary (load it with AutoModelForCausalLM)"
    missing = [name for name in TAKEN if name not in inspect.signature(model.forward).parameters]
    if missing:
        return f"does not take {' and '.join(missing)}, which this engine needs"
    if not getattr(config.get_text_config(), "max_position_embeddings", None):
        return "does not say how many positions it has (max_position_embeddings)"
    return _why_no_shape(config)


def _keeps_recurrent_state(model: Any) -> bool:
    """Transformers up to 5.24 says so of the model; of the cache's layers, always."""
    from transformers.cache_utils import DynamicCache, LinearAttentionCacheLayerMixin

    if getattr(model, "_is_stateful", False):
        return True
    try:
        layers = DynamicCache(config=model.config).layers
    except Exception:  # no cache for such a config: what else it lacks is told by the other checks
        return False
    return any(isinstance(layer, LinearAttentionCacheLayerMixin) for layer in layers)


def _why_no_shape(config: Any) -> str:
    try:
        KVShape.of(config)
    except Exception as error:  # in transformers' words, such as that head_dim is per layer
        return f"does not have the same KV heads in every layer ({str(error).partition('. ')[0]})"
    return ""


def required_features(model: Any, shape: KVShape, max_model_len: int) -> frozenset[str]:
    """What the attention of this model needs of a backend (see `options.FEATURES`), once it is
    certain that the engine computes what the model itself would, up to max_model_len tokens.

    Raises:
        UnsupportedAttentionError: it would not.
    """
    name = type(model).__name__
    _require_fixed_frequencies(model, max_model_len)
    vocabulary = model.config.get_text_config().vocab_size
    ids = [1 + place % (vocabulary - 1) for place in range(min(FEW_TOKENS, max_model_len))]
    with _named(name):
        calls = survey(model, ids)
        why = _why_not(calls, shape, max_model_len, model.device)
        if why:
            raise UnsupportedAttentionError(f"its attention {why}")
        require_own_logits(model, shape, ids)
    return frozenset(option for call in calls for option in call.options)


def _why_not(calls: list[LayerCall], shape: KVShape, max_model_len: int, device: Any) -> str:
    """What keeps the layers from being served; empty where nothing does."""
    times = Counter(call.layer for call in calls)
    if any(times[layer] != 1 for layer in range(shape.num_layers)):
        layers = sum(times[layer] == 1 for layer in range(shape.num_layers))
        return (
            f"is computed in its own code, such as ALiBi or a linear attention, in "
            f"{shape.num_layers - layers} of {shape.num_layers} layers"
        )
    for call in calls:
        found = (call.num_kv_heads, call.key_dim, call.value_dim)
        if found != (shape.num_kv_heads, shape.head_dim, shape.head_dim):
            return (
                f"has {found[0]} KV heads with keys of {found[1]} and values of {found[2]} in "
                f"layer {call.layer}; this engine wants {shape.num_kv_heads} of "
                f"{shape.head_dim} in every layer"
            )
    kinds = {(id(call.visible), call.options.get("window")): call for call in calls}
    if not all(call.masks_like_the_engine(max_model_len, device) for call in kinds.values()):
        return "has a mask of its own kind, such as chunked or bidirectional attention"
    return ""


def _require_fixed_frequencies(model: Any, max_model_len: int) -> None:
    """Longrope changes the rotary frequencies of all tokens once one is far enough, also those of
    the other requests of a batch."""
    for rope in _ropes(model.config.get_text_config()):
        longest = rope.get("original_max_position_embeddings") or max_model_len
        if rope.get("rope_type") == "longrope" and max_model_len > longest:
            raise UnsupportedAttentionError(
                f"{type(model).__name__} changes its rotary frequencies for texts longer than "
                f"{longest} tokens (longrope); set max_model_len to at most {longest}."
            )


def _ropes(config: Any) -> list[dict[str, Any]]:
    """The rotary settings, of which there may be one for each type of layer."""
    rope = getattr(config, "rope_parameters", None) or {}
    return [rope, *(part for part in rope.values() if isinstance(part, dict))]


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Say which model could not be run, and what to do."""
    import torch

    try:
        yield
    except UnsupportedAttentionError as error:
        text = str(error).rstrip(".").replace("This model's", "its")
        raise UnsupportedAttentionError(f"{name} is not served here: {text}; {INSTEAD}.") from None
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        raise UnsupportedAttentionError(
            f"{name} does not run with this engine's attention ({type(error).__name__}: "
            f"{str(error).splitlines()[0] if str(error) else ''}); {INSTEAD}."
        ) from error
