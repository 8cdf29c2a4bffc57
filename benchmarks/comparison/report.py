"""A result as Markdown."""

from __future__ import annotations

from typing import Any

Rows = list[list[str]]


def markdown(result: dict[str, Any]) -> str:
    """Everything that a result says, for one number of threads."""
    machine = result["machine"]
    threads = result["threads"]
    parts = [
        f"{threads} thread{'s' if threads > 1 else ''}, {result['when'][:10]}; {stated(machine)}."
    ]
    parts += [workload(each) for each in result["workloads"]]
    parts += [
        f"Left out: {name}, since our own two best repeats differ by {by:.0%}."
        for name, by in result.get("left_out", {}).items()
    ]
    parts.append(targets(result["targets"]))
    parts.append(memory(result["kv"]))
    return "\n\n".join(parts)


def summary(results: list[dict[str, Any]]) -> str:
    """The targets that were measured, with a column for each result: what the README shows."""
    results = sorted(results, key=lambda result: result["threads"])
    names = [f"{r['threads']} thread{'s' if r['threads'] > 1 else ''}" for r in results]
    rows = [
        [judged[0]["name"], _wanted(judged[0]), *map(_figure_and_verdict, judged)]
        for judged in zip(*(result["targets"] for result in results), strict=True)
        if any(each["got"] is not None for each in judged)
    ]
    where = dict.fromkeys(f"{r['when'][:10]}, {stated(r['machine'])}." for r in results)
    return "\n\n".join([table(["", "target", *names], rows), *where])


def stated(machine: dict[str, Any]) -> str:
    """The machine in words."""
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    vectors = f" ({machine['vectors']})" if "vectors" in machine else ""
    return f"{machine['processor']}{vectors}, {machine['cores']} cores; {versions}"


def workload(found: dict[str, Any]) -> str:
    warm_up = found["warm_up"]
    head = (
        f"**{found['name']}** ({found['model']}, {found['dtype']}): {found['requests']} requests, "
        f"{found['prompt_tokens']} prompt and {found['output_tokens']} output tokens. Warm-up: "
        f"{warm_up['output_tokens']} output tokens of {warm_up['requests']} requests."
    )
    rows = [
        [
            run["contestant"], f"{run['min_s']:.2f}", f"{run['median_s']:.2f}",
            f"{min(run['cpu_seconds']):.2f}",
            f"{run['tokens_per_second']:.0f}", f"{run['ratio']:.2f}", f"{run['repeats']}",
        ]
        for run in found["runs"]
    ]  # fmt: skip
    names = ["", "min s", "median s", "CPU s", "output tokens/s", "times ours", "repeats"]
    refused = [
        f"- Not ranked: {name}, since {'; '.join(reasons)}."
        for name, reasons in found["refused"].items()
    ]
    return "\n\n".join(filter(None, [head, table(names, rows), "\n".join(refused)]))


def targets(judged: list[dict[str, Any]]) -> str:
    rows = [
        [each["name"], _wanted(each), _figure(each["got"], each), _verdict(each), each["why"]]
        for each in judged
    ]
    return table(["target", "want", "got", "", "from"], rows)


def memory(kv: dict[str, list[dict[str, float]]]) -> str:
    """KV slots held and empty."""
    rows = [
        [
            name, f"{row['block_size']}", f"{row['tokens_held']:.1f}",
            *(f"{row[kind]:.2%}" for kind in ("measured", "least", "expected")),
        ]
        for name, found in kv.items() for row in found
    ]  # fmt: skip
    names = ["KV waste", "block size", "tokens a request holds", "measured", "least", "by formula"]
    return table(names, rows)


def table(names: list[str], rows: Rows) -> str:
    """The first column to the left, those of figures to the right."""
    marks = ["---"] + ["---:" if _is_figures(rows, i) else "---" for i in range(1, len(names))]
    lines = [names, marks, *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _is_figures(rows: Rows, column: int) -> bool:
    return all(row[column].rstrip("%").replace(".", "").isdigit() for row in rows)


def _wanted(each: dict[str, Any]) -> str:
    return f"{'<=' if each['at_most'] else '>='} {_figure(each['want'], each)}"


def _figure(value: float | None, each: dict[str, Any]) -> str:
    """A share where a share is wanted, else a factor."""
    if value is None:
        return "-"
    return f"{value:.1%}" if each["want"] < 1 else f"{value:.2f}"


def _figure_and_verdict(each: dict[str, Any]) -> str:
    return (
        _verdict(each) if each["got"] is None else f"{_figure(each['got'], each)}, {_verdict(each)}"
    )


def _verdict(each: dict[str, Any]) -> str:
    return {True: "reached", False: "not reached", None: "not measured"}[each["reached"]]
