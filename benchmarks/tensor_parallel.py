"""Greedy tokens of the bundled model, split among processes, against those of one process.

    torchrun --nproc-per-node 2 -m benchmarks.tensor_parallel     a GPU each, or CPUs without GPUs

Prints one line of JSON: the share of tokens that differ, how many there are, and the tokens/s of
each. The exit code is 1 where one differs. Not yet run on several GPUs.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from llmserve_lab import LLM, SamplingParams, load
from llmserve_lab.models.load import LoadedModel

ROOT = Path(__file__).resolve().parents[1]
PROMPTS = ["import os\n", "class Stack:\n    def push(self, item):\n", "def add(a, b):\n"]
GREEDY = SamplingParams(temperature=0, max_tokens=32, ignore_eos=True)


def compare(processes: int = 2) -> dict[str, Any]:
    """What this program prints under torchrun.

    Raises:
        RuntimeError: it fails.
    """
    launcher = (sys.executable, "-m", "torch.distributed.run", "--standalone")
    count = ("--nproc-per-node", str(processes))
    done = subprocess.run(
        [*launcher, *count, "-m", "benchmarks.tensor_parallel"],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    try:
        return json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        raise RuntimeError(f"{processes} processes gave no result: {done.stderr[-2000:]}") from None


def run(loaded: LoadedModel) -> tuple[list[int], float]:
    """All tokens, and how many came in a second of the second run."""
    llm = LLM(loaded, num_blocks=32, max_num_seqs=4, max_num_batched_tokens=8)
    llm.generate(PROMPTS, GREEDY)
    llm.reset_metrics()
    outputs = llm.generate(PROMPTS, GREEDY)
    tokens = [token for output in outputs for token in output.outputs[0].token_ids]
    return tokens, len(tokens) / llm.metrics.seconds


def main() -> int:
    split, split_speed = run(load("lab-target", dtype="float32", tensor_parallel=True))
    whole, whole_speed = run(load("lab-target", dtype="float32"))
    share = sum(a != b for a, b in zip(split, whole, strict=True)) / len(whole)
    result = {
        "different": share,
        "tokens": len(whole),
        "tokens_per_second": {"split": round(split_speed, 1), "whole": round(whole_speed, 1)},
    }
    print(json.dumps(result))
    return 1 if share else 0


if __name__ == "__main__":
    sys.exit(main())
