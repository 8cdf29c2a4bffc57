"""What speculative decoding brings on this machine: without drafts, with a draft model, by lookup.

    python -m benchmarks.speculative [--batch 1 8] [--drafts 2 4 8] [--rounds 3] [--json FILE]

Every row serves the same prompts greedily in float32 and must give the same tokens. The rounds of
all rows take turns, and each row is told by its fastest. Prompts that repeat themselves are told
apart from others: that is where a lookup finds something.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.scheduler import machine
from llmserve_lab import LLM, PromptLookup, SamplingParams, load
from llmserve_lab.course.experiments import held_out_prompts

PROMPT_TOKENS = 64
OUTPUT_TOKENS = 96
ENTRY = '    ("{0}_seconds", "how long {0} took", 0.0),\n'
REPEATING = "FIELDS = [\n" + "".join(
    ENTRY.format(name) for name in ("prefill", "decode", "draft", "verify", "sampling", "waiting")
)
GREEDY = SamplingParams(temperature=0, max_tokens=OUTPUT_TOKENS, ignore_eos=True)


def engines(counts: list[int], batch: int) -> dict[str, LLM]:
    """By name, all on the same weights."""
    target, draft = load("lab-target", "float32"), load("lab-draft", "float32")

    def make(**settings: Any) -> LLM:
        return LLM(target, max_num_seqs=batch, num_blocks=16 * batch, **settings)

    made = {"none": make()}
    for count in counts:
        made[f"lab-draft, {count}"] = make(draft=draft, num_draft_tokens=count)
        made[f"lookup, {count}"] = make(draft=PromptLookup(), num_draft_tokens=count)
    return made


def prompts(batch: int, tokenizer: Any) -> dict[str, list[Any]]:
    repeated = tokenizer(REPEATING)["input_ids"]
    return {
        "held-out code": held_out_prompts(tokenizer, batch, PROMPT_TOKENS),
        "a repeating list": [{"prompt_token_ids": repeated[n:]} for n in range(batch)],
    }


def measure(counts: list[int], batch: int, rounds: int) -> list[dict]:
    """One row for each kind of prompt and engine."""
    made = engines(counts, batch)
    rows = []
    for kind, asked in prompts(batch, made["none"].tokenizer).items():
        best = {name: timed(llm, asked) for name, llm in made.items()}
        for _ in range(rounds - 1):
            best = {
                name: min(row, timed(made[name], asked), key=_time) for name, row in best.items()
            }
        tokens = {name: row.pop("tokens") for name, row in best.items()}
        if len(set(tokens.values())) > 1:
            raise SystemExit(f"{kind}: not all rows gave the same tokens.")
        base = best["none"]["seconds"]
        rows += [
            {"prompts": kind, "batch": batch, "draft": name, "ratio": base / row["seconds"], **row}
            for name, row in best.items()
        ]
    return rows


def _time(row: dict) -> float:
    return row["seconds"]


def timed(llm: LLM, asked: list[Any]) -> dict:
    """Seconds in steps for one round, and what became of its drafts."""
    llm.reset_metrics()
    outputs = llm.generate(asked, GREEDY)
    found = llm.metrics
    return {
        "seconds": found.seconds,
        "draft_seconds": found.draft_seconds,
        "forward_seconds": found.forward_seconds,
        "steps": found.steps,
        "acceptance_rate": found.acceptance_rate,
        "mean_accepted_length": found.mean_accepted_length,
        "tokens": tuple(output.outputs[0].token_ids for output in outputs),
    }


def show(rows: list[dict], tell: Callable[[str], None] = print) -> None:
    tell(
        f"{'prompts':18}{'batch':>6}{'draft':>15}{'ms/step':>9}{'draft':>7}{'steps':>7}"
        f"{'accepted':>10}{'tokens/step':>13}{'speed':>7}"
    )
    for row in rows:
        ms = 1000 / row["steps"]
        tell(
            f"{row['prompts']:18}{row['batch']:6}{row['draft']:>15}{row['seconds'] * ms:9.2f}"
            f"{row['draft_seconds'] * ms:7.2f}{row['steps']:7}{row['acceptance_rate']:10.0%}"
            f"{row['mean_accepted_length']:13.2f}{row['ratio']:7.2f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--drafts", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    asked = parser.parse_args()
    print(f"{machine()}; {OUTPUT_TOKENS} tokens each, fastest of {asked.rounds} rounds")
    rows = [row for batch in asked.batch for row in measure(asked.drafts, batch, asked.rounds)]
    show(rows)
    if asked.json:
        asked.json.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
