"""The model card: written by the training run, from what it measured on the saved weights."""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path
from typing import Any

from llmserve_lab.models import corpus
from llmserve_lab.models.evaluate import HeldOutScore, gzip_bits_per_byte, score_pair
from llmserve_lab.models.trainer import Trainer

CURVE_ROWS = 12
METRICS_FILE = "metrics.json"
CARD_FILE = "README.md"


def write_cards(
    target: Trainer,
    draft: Trainer,
    folder: Path,
    training: list[corpus.SourceFile],
    held_out: list[corpus.SourceFile],
) -> dict[str, dict[str, Any]]:
    """Measure the two models saved below `folder` on `held_out`; write README.md and metrics.json
    beside each. Returns the metrics by the model's name."""
    from llmserve_lab.models.load import load

    saved = [load(folder / trainer.recipe.name, "float32") for trainer in (target, draft)]
    whole, sample = (
        score_pair(saved[0].model, saved[1].model, saved[0].tokenizer, texts)
        for texts in (_texts(held_out), _texts(corpus.held_out_sample()))
    )
    shared = _corpus_metrics(training, held_out)
    metrics = {
        target.recipe.name: shared | _run_metrics(target, whole.first, sample.first),
        draft.recipe.name: shared
        | _run_metrics(draft, whole.second, sample.second)
        | {"greedy_agreement_with_target": round(whole.agreement, 4)},
    }
    for trainer in (target, draft):
        _write(folder / trainer.recipe.name, trainer, metrics[trainer.recipe.name])
    return metrics


def _texts(files: list[corpus.SourceFile]) -> list[str]:
    return [file.text for file in files]


def _corpus_metrics(
    training: list[corpus.SourceFile], held_out: list[corpus.SourceFile]
) -> dict[str, Any]:
    return {
        "corpus_files": len(training),
        "corpus_bytes": sum(file.num_bytes for file in training),
        "corpus_sha256": corpus.digest(training),
        "held_out_files": len(held_out),
        "held_out_bytes": sum(file.num_bytes for file in held_out),
        "gzip_bits_per_byte": round(gzip_bits_per_byte(_texts(held_out)), 4),
        "python": platform.python_version(),
    }


def _run_metrics(trainer: Trainer, whole: HeldOutScore, sample: HeldOutScore) -> dict[str, Any]:
    return {
        "parameters": trainer.model.num_parameters(),
        "bits_per_byte": round(whole.bits_per_byte, 4),
        "perplexity_per_token": round(whole.perplexity, 3),
        "sample_bits_per_byte": round(sample.bits_per_byte, 4),
        "tokens_seen": trainer.tokens_seen,
        "epochs": round(trainer.tokens_seen / len(trainer.tokens), 2),
        "steps": trainer.step,
        "training_minutes": round(trainer.elapsed / 60, 1),
        "device": str(trainer.device),
        "cores": os.cpu_count(),
        "curve": _thinned(trainer.curve),
    }


def _write(folder: Path, trainer: Trainer, metrics: dict[str, Any]) -> None:
    (folder / METRICS_FILE).write_text(json.dumps(metrics, indent=1) + "\n", encoding="utf-8")
    (folder / CARD_FILE).write_text(_card(trainer, metrics), encoding="utf-8")


def _thinned(curve: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """About `CURVE_ROWS` points of the loss curve, the last one among them."""
    every = max(1, len(curve) // CURVE_ROWS)
    return curve[::-1][::every][::-1]


def _agreement_row(metrics: dict[str, Any]) -> str:
    """Of a draft; a target has no such row."""
    agreement = metrics.get("greedy_agreement_with_target")
    if agreement is None:
        return ""
    return f"| greedy tokens that agree with lab-target's | {agreement:.1%} |\n"


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
{_agreement_row(metrics)}\
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
