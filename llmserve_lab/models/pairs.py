"""Draft and target models that share a tokenizer, for speculative decoding."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pair:
    """Hub names of a target and a draft. `gpu_gib`: memory for both in bf16, roughly."""

    target: str
    draft: str
    gpu_gib: int
    licence: str


RECOMMENDED = (
    Pair("lab-target", "lab-draft", 0, "PSF-2.0 (corpus), Apache-2.0 (weights)"),
    Pair("HuggingFaceTB/SmolLM2-360M", "HuggingFaceTB/SmolLM2-135M", 2, "Apache-2.0"),
    Pair("Qwen/Qwen3-1.7B", "Qwen/Qwen3-0.6B", 6, "Apache-2.0"),
    Pair("Qwen/Qwen3-8B", "Qwen/Qwen3-0.6B", 20, "Apache-2.0"),
    Pair("meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.2-1B", 21, "Llama community"),
)


def pairs_table() -> str:
    """The recommended pairs as text."""
    rows = [("target", "draft", "GPU GiB", "licence")]
    rows += [(p.target, p.draft, str(p.gpu_gib or "-"), p.licence) for p in RECOMMENDED]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
             for row in rows)  # fmt: skip
    return "\n".join(line.rstrip() for line in lines)
