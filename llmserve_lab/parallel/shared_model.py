"""A model of which every process holds a part (Megatron-LM, Shoeybi et al. 2019, section 3), split
by transformers as its plan for the model's architecture says."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch

from llmserve_lab.attention import require_decoder
from llmserve_lab.attention.survey import survey
from llmserve_lab.kv_cache import KVShape
from llmserve_lab.models.files import read_config, read_model
from llmserve_lab.models.hardware import fit_threads, pick_device
from llmserve_lab.parallel.ranks import Ranks, Twin

# Layers whose output holds keys, in transformers' plans, and how it is split by heads there.
KEYS, BY_HEADS = ("k_proj", "qkv_proj", "query_key_value"), "colwise"
FEW_TOKENS = [1, 2]


@dataclass(frozen=True, slots=True)
class SharedModel:
    """As rank 0 sees it. part: the transformers model of each process. kv_shape: what a part's
    layers keep of keys and values. num_parameters: of the whole."""

    ranks: Ranks
    part: Twin
    kv_shape: KVShape
    num_parameters: int

    @classmethod
    def load(cls, ranks: Ranks, source: str, dtype: Any) -> SharedModel:
        """Let every process read its part of the model in a folder or of a hub name.

        Raises:
            ValueError: it cannot be split among so many processes, or its files are damaged.
            UnsupportedAttentionError: this engine does not serve this kind of model.
        """
        require_shareable(source, ranks.size)
        part = ranks.make(_read, source, dtype, ranks.size)
        shape = ranks.each(kv_shape_of_part, part)[0]
        if ranks.size > 1:
            table = ranks.own(part).get_input_embeddings()  # every forward begins with it
            table.register_forward_pre_hook(partial(_require_company, ranks))
        return cls(ranks, part, shape, num_parameters(source))

    @property
    def own_part(self) -> Any:
        """The model as this process holds it."""
        return self.ranks.own(self.part)


def require_shareable(source: str, num_processes: int) -> None:
    """Raise unless transformers can split this model among so many processes, by whole heads.

    Raises:
        ValueError: it cannot.
    """
    if num_processes == 1:
        return
    if find_spec("accelerate") is None:
        raise ValueError("tensor_parallel needs the package accelerate: pip install accelerate.")
    config = read_config(source)
    text = config.get_text_config()
    plan = text.base_model_tp_plan or config.base_model_tp_plan
    if not plan:
        raise ValueError(
            f"transformers has no plan by which to split a {config.model_type} model "
            "(base_model_tp_plan); load it without tensor_parallel."
        )
    heads, kv_heads = text.num_attention_heads, KVShape.of(config).num_kv_heads
    common = math.gcd(heads, kv_heads)
    if _splits_heads(plan) and common % num_processes:
        fitting = ", ".join(str(n) for n in range(1, common + 1) if common % n == 0)
        raise ValueError(
            f"{source} has {heads} attention heads and {kv_heads} KV heads, which {num_processes} "
            f"processes cannot share evenly: start one of {fitting}."
        )


def _splits_heads(plan: dict[str, str]) -> bool:
    return any(name.endswith(KEYS) and style == BY_HEADS for name, style in plan.items())


def num_parameters(source: str) -> int:
    """Of the whole model, counted without reading it: some are split among processes, and others
    are in each of them."""
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(read_config(source))
    return sum(parameter.numel() for parameter in model.parameters())


def kv_shape_of_part(part: Any) -> KVShape:
    """What the layers hand to attention in this process, seen in one run on a few tokens."""
    require_decoder(part)
    shape, calls = KVShape.of(part.config), survey(part, FEW_TOKENS)
    return replace(shape, num_kv_heads=calls[0].num_kv_heads) if calls else shape


def _read(source: str, dtype: Any, num_processes: int) -> Any:
    from transformers.distributed import DistributedConfig

    fit_threads()
    options = {"distributed_config": DistributedConfig(tp_size=num_processes)}
    model = read_model(source, dtype, options)
    return (model if num_processes > 1 else model.to(pick_device())).eval()


def _require_company(ranks: Ranks, *_: Any) -> None:
    if not ranks.together:
        raise RuntimeError(
            "This model is shared with other processes, which do not run with a call of it here: "
            "call LLM.generate instead."
        )
