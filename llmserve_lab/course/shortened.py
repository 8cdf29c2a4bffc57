"""A model with fewer layers: to see what depends on their number."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llmserve_lab.models.load import LoadedModel


def shortened(loaded: LoadedModel, num_layers: int) -> LoadedModel:
    """A copy that keeps only the first `num_layers` layers. It runs, and writes nonsense.

    Raises:
        ValueError: the model has no so many layers.
    """
    count = loaded.model.config.num_hidden_layers
    if not 1 <= num_layers <= count:
        raise ValueError(f"This model has {count} layers: keep from 1 to {count}.")
    model = deepcopy(loaded.model)
    model.model.layers = model.model.layers[:num_layers]
    model.config.num_hidden_layers = num_layers
    return replace(loaded, name=f"{loaded.name}, {num_layers} layers", model=model)
