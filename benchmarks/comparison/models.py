"""The folders that hold the weights, the same for every engine."""

from __future__ import annotations

from pathlib import Path

from benchmarks.peers.environment import SCRATCH
from benchmarks.peers.protocol import WEIGHTS
from llmserve_lab.models.load import bundled_path

LAB_TARGET = "lab-target"
SMALL = "SmolLM2-135M shape"
SEED = 0
SPREAD = 0.04  # of the random weights; with the usual 0.02 it only repeats its last token
SHAPE = {
    "vocab_size": 49152,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "max_position_embeddings": 2048,
    "rope_theta": 100_000.0,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
    "initializer_range": SPREAD,
    "bos_token_id": 0,
    "eos_token_id": 0,
}
"""https://huggingface.co/HuggingFaceTB/SmolLM2-135M, with a quarter of its context."""


def folder_of(model: str) -> Path:
    """Where `model` lies; the random one is made at its first use, from a seed."""
    if model == LAB_TARGET:
        return bundled_path(model)
    folder = SCRATCH / "models" / f"135m-{SPREAD}-{SEED}"
    if not (folder / WEIGHTS).exists():
        _make(folder)
    return folder


def vocabulary_of(model: str) -> int:
    """Ids that prompts may hold."""
    return 4096 if model == LAB_TARGET else SHAPE["vocab_size"]  # type: ignore[return-value]


def _make(folder: Path) -> None:
    import torch
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    with torch.random.fork_rng():
        torch.manual_seed(SEED)
        model = LlamaForCausalLM(LlamaConfig(**SHAPE)).to(torch.bfloat16)
    # `load` wants a tokenizer; its ids are a part of the model's
    AutoTokenizer.from_pretrained(bundled_path(LAB_TARGET)).save_pretrained(folder)
    model.save_pretrained(folder)
