"""What `LLM(compile=True)` brings on this machine, and what it costs.

    python -m benchmarks.compiled [--threads 1] [--rounds 5] [--works mixed] [--json FILE]

Both engines have the same weights and requests and must give the same tokens. After one untimed
run of each they take turns. In bf16 a near tie may fall either way: there the share of equal tokens
is told.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmarks.comparison.models import folder_of
from benchmarks.comparison.workloads import Work, works
from benchmarks.peers.ours import without_tokenizer
from benchmarks.scheduler import machine
from llmserve_lab import LLM, SamplingParams
from llmserve_lab.models.load import load

KINDS = {"plain": False, "compiled": True}
WORKS = ("mixed", "single stream")  # unless others are asked for


def measure(work: Work, rounds: int) -> dict[str, Any]:
    """Seconds of either engine for one workload, and to make it."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    loaded = without_tokenizer(load(folder_of(work.model), work.dtype, device))
    made = {kind: _timed(LLM, loaded, compile=on) for kind, on in KINDS.items()}
    engines = {kind: llm for kind, (llm, _) in made.items()}
    tokens = {kind: _run(llm, work) for kind, llm in engines.items()}
    seconds: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for _ in range(rounds):
        for kind, llm in engines.items():
            seconds[kind].append(_timed(_run, llm, work)[1])
    return {
        "work": work.name,
        "dtype": work.dtype,
        "output_tokens": work.num_output_tokens,
        "equal_tokens": _equal(*tokens.values()),
        "seconds_to_make": {kind: taken for kind, (_, taken) in made.items()},
        "seconds": seconds,
    }


def _timed(function: Any, *arguments: Any, **settings: Any) -> tuple[Any, float]:
    start = time.perf_counter()
    found = function(*arguments, **settings)
    return found, time.perf_counter() - start


def _run(llm: LLM, work: Work) -> list[int]:
    params = [
        SamplingParams(temperature=0, max_tokens=count, ignore_eos=True)
        for count in work.max_tokens
    ]
    outputs = llm.generate([{"prompt_token_ids": ids} for ids in work.prompts], params)
    return [token for output in outputs for token in output.outputs[0].token_ids]


def _equal(ours: list[int], theirs: list[int]) -> float:
    return sum(a == b for a, b in zip(ours, theirs, strict=True)) / len(ours)


def show(row: dict[str, Any]) -> None:
    print(f"\n{row['work']} ({row['dtype']}), {row['equal_tokens']:.1%} of the tokens are equal")
    for kind, seconds in row["seconds"].items():
        print(
            f"  {kind:10} least {min(seconds):7.3f} s   median {median(seconds):7.3f} s"
            f"   made in {row['seconds_to_make'][kind]:5.1f} s"
        )
    plain, compiled = (median(seconds) for seconds in row["seconds"].values())
    print(f"  compiled is {plain / compiled:.2f} times as fast, by medians")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--works", nargs="+", choices=list(works()), default=WORKS)
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    print(f"{machine()}; one warm-up, then {asked.rounds} rounds in turn")
    rows = []
    for name in asked.works:
        rows.append(measure(works()[name], asked.rounds))
        show(rows[-1])
        if rows[-1]["dtype"] == "float32" and rows[-1]["equal_tokens"] < 1:
            raise SystemExit(f"{name}: the two engines gave different tokens.")
    if asked.json:
        asked.json.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
