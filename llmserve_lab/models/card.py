"""The model card: written by the training run, from what it measured on the saved weights."""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path
from typing import Any

from llmserve_lab.models import corpus
from llmserve_lab.models.evaluate import greedy_agreement, gzip_bits_per_byte, score
from llmserve_lab.models.trainer import Trainer

CURVE_ROWS = 12
METRICS_FILE = "metrics.json"
CARD_FILE = "README.md"


def write_card(
    trainer: Trainer,
    folder: Path,
    target_folder: Path,
    training: list[corpus.SourceFile],
    held_out: list[corpus.SourceFile],
) -> dict[str, Any]:
    """Measure the weights in `folder` on `held_out`; write README.md and metrics.json there."""
    from llmserve_lab.models.load import load

    saved, target = load(folder, "float32"), load(target_folder, "float32")
    texts = [file.text for file in held_out]
    result = score(saved.model, saved.tokenizer, texts)
    metrics = {
        "parameters": saved.num_parameters,
        "held_out_files": len(held_out),
        "held_out_bytes": result.num_bytes,
        "bits_per_byte": round(result.bits_per_byte, 4),
        "gzip_bits_per_byte": round(gzip_bits_per_byte(texts), 4),
        "perplexity_per_token": round(result.perplexity, 3),
        "sample_bits_per_byte": round(_sample_score(saved), 4),
        "greedy_agreement_with_target": round(
            greedy_agreement(target.model, saved.model, saved.tokenizer, texts), 4
        ),
        "corpus_files": len(training),
        "corpus_bytes": sum(file.num_bytes for file in training),
        "corpus_sha256": corpus.digest(training),
        "python": platform.python_version(),
        "tokens_seen": trainer.tokens_seen,
        "epochs": round(trainer.tokens_seen / len(trainer.tokens), 2),
        "steps": trainer.step,
        "training_minutes": round(trainer.elapsed / 60, 1),
        "device": str(trainer.device),
        "cores": os.cpu_count(),
        "curve": _thinned(trainer.curve),
    }
    (folder / METRICS_FILE).write_text(json.dumps(metrics, indent=1) + "\n", encoding="utf-8")
    (folder / CARD_FILE).write_text(_card(trainer, metrics), encoding="utf-8")
    return metrics


def _sample_score(saved: Any) -> float:
    texts = [file.text for file in corpus.held_out_sample()]
    return score(saved.model, saved.tokenizer, texts).bits_per_byte


def _thinned(curve: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """About `CURVE_ROWS` points of the loss curve, the last one among them."""
    every = max(1, len(curve) // CURVE_ROWS)
    return curve[::-1][::every][::-1]


def _card(trainer: Trainer, metrics: dict[str, Any]) -> str:
    recipe = trainer.recipe
    teacher = "no" if trainer.teacher is None else "yes: its loss follows lab-target's distribution"
    curve = "\n".join(f"| {tokens:,} | {loss} |" for tokens, loss in metrics["curve"])
    return f"""---
license: apache-2.0
library_name: transformers
tags: [llama, python, teaching]
---
# {recipe.name}

A small Llama with grouped-query attention that continues Python source. It exists for teaching:
experiments on latency, memory, quantization and speculation run offline, in seconds, on a real
distribution. It is no coding assistant.

| | |
|---|---|
| parameters | {metrics["parameters"]:,} |
| shape | {recipe.layers} layers of {recipe.hidden}, {recipe.heads} heads of {recipe.head_dim}, \
{recipe.kv_heads} KV heads, MLP {recipe.intermediate} |
| context | {recipe.context} tokens |
| held-out bits per byte | {metrics["bits_per_byte"]} ({metrics["held_out_files"]} files, \
{metrics["held_out_bytes"]:,} bytes, never trained on) |
| gzip -9 on the same files | {metrics["gzip_bits_per_byte"]} |
| greedy tokens that agree with lab-target's | {metrics["greedy_agreement_with_target"]:.1%} |
| trained on | {metrics["tokens_seen"]:,} tokens ({metrics["epochs"]} epochs), \
{metrics["training_minutes"]} minutes on {metrics["cores"]} cores ({metrics["device"]}) |
| distilled | {teacher} |

## Corpus
The source of Python {metrics["python"]}'s standard library, {metrics["corpus_files"]} files,
{metrics["corpus_bytes"]:,} bytes, without tests, generated tables and IDLE. Python is distributed
under the PSF licence; copyright Python Software Foundation. SHA-256 over names and texts:
`{metrics["corpus_sha256"]}`.

## Training loss (nats per token)
| tokens seen | loss |
|---|---|
{curve}

Made by `python -m llmserve_lab.models.train`, which also wrote this card.
"""
