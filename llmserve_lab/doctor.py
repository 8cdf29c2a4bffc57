"""What works on this machine, as a table: `doctor()` in a notebook, `python3 lab.py doctor`."""

from __future__ import annotations

import html
import importlib.metadata
import os
import platform
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from llmserve_lab.machine import (
    has_nvidia_driver,
    memory,
    processor_name,
    reachable,
    usable_cores,
)

State = Literal["ok", "note", "fix"]
SIGNS = {"ok": "✓", "note": "•", "fix": "✗"}
TERMINAL_COLOURS = {"ok": 32, "note": 33, "fix": 31}  # ANSI green, yellow, red
PAGE_COLOURS = {"ok": "#2e9e5b", "note": "#c98a00", "fix": "#d64545"}  # on light and dark pages

PYTHON_TESTED = ((3, 11), (3, 13))
WIDGET_FLOORS = {"ipywidgets": "7.7", "plotly": "5.24", "anywidget": "0.9.21"}  # pyproject's
BUNDLED = ("lab-target", "lab-draft")
MEMORY_NEEDED = 2 * 2**30  # bytes free, for a notebook's kernel
PROBE_SECONDS = 2.0
HUB = "https://huggingface.co"
REINSTALL = "Run python3 lab.py --reset to install everything anew."


@dataclass(frozen=True, slots=True)
class Row:
    """One thing looked at: what was found, and for a red row (`fix`) what to do about it."""

    name: str
    state: State
    found: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """The rows of a check-up; a table in a terminal and in a notebook."""

    rows: tuple[Row, ...]

    @property
    def works(self) -> bool:
        """Whether no row is red."""
        return all(row.state != "fix" for row in self.rows)

    @property
    def verdict(self) -> str:
        to_fix = [row.name for row in self.rows if row.state == "fix"]
        return f"To fix: {', '.join(to_fix)}." if to_fix else "Everything the course needs works."

    def text(self, colour: bool = False) -> str:
        """The table as lines of text, with ANSI colours on request."""
        width = max(len(row.name) for row in self.rows)
        lines = []
        for row in self.rows:
            sign = SIGNS[row.state]
            if colour:
                sign = f"\033[{TERMINAL_COLOURS[row.state]}m{sign}\033[0m"
            lines.append(f"{sign} {row.name:<{width}}  {row.found}")
            if row.advice:
                lines.append(f"  {'':<{width}}  {row.advice}")
        return "\n".join([*lines, "", self.verdict])

    def __repr__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        rows = "".join(self._html_row(row) for row in self.rows)
        return (
            f"<table style='text-align:left'><caption style='text-align:left'>"
            f"{html.escape(self.verdict)}</caption><tbody>{rows}</tbody></table>"
        )

    def _html_row(self, row: Row) -> str:
        advice = f"<br><em>{html.escape(row.advice)}</em>" if row.advice else ""
        sign = (
            f"<span style='color:{PAGE_COLOURS[row.state]};font-weight:bold' role='img' "
            f"aria-label='{row.state}'>{SIGNS[row.state]}</span>"
        )
        return (
            f"<tr><td>{sign}</td><th scope='row' style='text-align:left'>{html.escape(row.name)}"
            f"</th><td style='text-align:left'>{html.escape(row.found)}{advice}</td></tr>"
        )


def check_python() -> Row:
    found = f"{platform.python_version()} in {sys.prefix}"
    oldest, newest = PYTHON_TESTED
    if sys.version_info[:2] < oldest:
        return Row("Python", "fix", found, "Install Python 3.11 or newer.")
    if sys.version_info[:2] > newest:
        return Row("Python", "note", found, "Newer than the tested 3.11 to 3.13.")
    return Row("Python", "ok", found)


def check_torch() -> Row:
    import torch

    build = f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPU build"
    found = f"{torch.__version__} ({build})"
    if has_nvidia_driver() and not torch.cuda.is_available():
        advice = "An NVIDIA driver is here, but this torch finds no GPU: choose a CUDA build at "
        return Row("torch", "note", found, advice + "https://pytorch.org/get-started/locally")
    return Row("torch", "ok", found)


def check_device() -> Row:
    import torch

    from llmserve_lab.models.hardware import pick_device

    device = pick_device()
    if device.type == "cuda":
        gpu = torch.cuda.get_device_properties(device)
        return Row("Device", "ok", f"{gpu.name}, {gibibytes(gpu.total_memory)}")
    return Row("Device", "ok", f"CPU ({processor_name()}); no GPU is needed")


def check_dtype() -> Row:
    from llmserve_lab.models.hardware import pick_device, pick_dtype

    dtype, reason = pick_dtype(pick_device())
    return Row("dtype", "ok", f"{str(dtype).removeprefix('torch.')}: {reason}")


def check_threads() -> Row:
    import torch

    cores, threads = usable_cores(), torch.get_num_threads()
    found = f"{threads} threads on {cores} {'core' if cores == 1 else 'cores'}"
    if threads > cores:
        return Row("Threads", "note", found, f"Set OMP_NUM_THREADS={cores}: fewer are faster here.")
    return Row("Threads", "ok", found)


def check_memory() -> Row:
    total, free = memory()
    if free is None:
        size = "unknown" if total is None else gibibytes(total)
        return Row("Memory", "note", f"{size}; the free part cannot be read on this system")
    found = f"{gibibytes(total or free)}, {gibibytes(free)} free"
    if free < MEMORY_NEEDED:
        return Row("Memory", "fix", found, "Close other programs or kernels: 2 GiB must be free.")
    return Row("Memory", "ok", found)


def check_widgets() -> Row:
    found, old = [], []
    for package, floor in WIDGET_FLOORS.items():
        try:
            version = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            version = "missing"
        found.append(f"{package} {version}")
        if numbers(version) < numbers(floor):
            old.append(f'"{package}>={floor}"')
    if old:
        return Row("Widgets", "fix", ", ".join(found), f"Run pip install {' '.join(old)}")
    return Row("Widgets", "ok", ", ".join(found))


def check_models(package: Path = Path(__file__).parent) -> Row:
    weights = {name: package / "models" / name / "model.safetensors" for name in BUNDLED}
    missing = [name for name, path in weights.items() if not path.exists()]
    if missing:
        advice = "Get a fresh copy of the course: the models come with it."
        return Row("Bundled models", "fix", f"{', '.join(missing)} missing", advice)
    sizes = [f"{name} ({path.stat().st_size / 1e6:.1f} MB)" for name, path in weights.items()]
    return Row("Bundled models", "ok", ", ".join(sizes))


def check_hub() -> Row:
    unneeded = "Not needed: the bundled models run offline."
    for variable in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        if os.environ.get(variable, "").upper() in {"1", "ON", "YES", "TRUE"}:
            return Row("Model hub", "note", f"switched off by {variable}", unneeded)
    address = urlsplit(os.environ.get("HF_ENDPOINT") or HUB)
    host, port = address.hostname or "", address.port or {"http": 80}.get(address.scheme, 443)
    if reachable(host, port, PROBE_SECONDS):
        return Row("Model hub", "ok", f"{host} answers")
    return Row("Model hub", "note", f"{host} does not answer", unneeded)


CHECKS: tuple[Callable[[], Row], ...] = (
    check_python,
    check_torch,
    check_device,
    check_dtype,
    check_threads,
    check_memory,
    check_widgets,
    check_models,
    check_hub,
)


def examine(check: Callable[[], Row]) -> Row:
    """The check's row; a red one when the check itself fails, so that the others still show."""
    try:
        return check()
    except Exception as error:  # a broken installation raises anything, OSError to RuntimeError
        name = check.__name__.removeprefix("check_").replace("_", " ").capitalize()
        return Row(name, "fix", f"{type(error).__name__}: {error}", REINSTALL)


def doctor() -> Report:
    """Look at Python, torch, the device, memory, widgets, models and the hub; takes seconds."""
    return Report(tuple(examine(check) for check in CHECKS))


def gibibytes(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"


def numbers(version: str) -> tuple[int, ...]:
    """A version's numbers, to compare; () when there are none."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


def main() -> int:
    """Print the table; exit code 1 when something has to be fixed."""
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # a console without ✓ shows ? instead
    report = doctor()
    print(report.text(colour=sys.stdout.isatty() and "NO_COLOR" not in os.environ))
    return 0 if report.works else 1


if __name__ == "__main__":
    sys.exit(main())
