"""Facts about the machine that need no torch: processor, cores, memory, network."""

from __future__ import annotations

import os
import platform
import re
import shutil
import socket
import threading
from pathlib import Path

NO_LIMIT = 2**60  # control groups write a number of bytes above it, or "max", for "unlimited"


def processor_name() -> str:
    """The processor's marketing name where the system tells it, else its architecture."""
    try:
        facts = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        facts = ""
    named = re.search(r"^model name\s*:\s*(.+)$", facts, flags=re.MULTILINE)
    return named.group(1).strip() if named else platform.processor() or platform.machine()


def usable_cores(limit: Path = Path("/sys/fs/cgroup/cpu.max")) -> int:
    """Cores that this process may run on, or whose time a container leaves it: at least one."""
    allowed = hasattr(os, "sched_getaffinity")
    cores = len(os.sched_getaffinity(0)) if allowed else os.cpu_count() or 1
    return max(1, min(cores, int(_cpu_quota(limit))))


def _cpu_quota(limit: Path) -> float:
    """Cores' worth of time per period, written as "quota period" in microseconds."""
    try:
        quota, period = map(int, limit.read_text().split())
    except (OSError, ValueError):  # no control group, or "max"
        return NO_LIMIT
    return quota / period if period else NO_LIMIT


def has_nvidia_driver() -> bool:
    """Whether NVIDIA's driver is installed, so that torch should find a GPU."""
    devices = Path("/proc/driver/nvidia/gpus")
    return any(devices.glob("*")) or shutil.which("nvidia-smi") is not None


def memory() -> tuple[int | None, int | None]:
    """Total and free memory in bytes, within a container's limit; None where it is not known."""
    total, free = _system_memory()
    limit = _number(Path("/sys/fs/cgroup/memory.max"))
    if limit is not None and limit < min(total or NO_LIMIT, NO_LIMIT):
        used = _number(Path("/sys/fs/cgroup/memory.current")) or 0
        left = max(0, limit - used)
        return limit, left if free is None else min(free, left)
    return total, free


def _system_memory() -> tuple[int | None, int | None]:
    try:
        import psutil
    except ImportError:
        return _memory_without_psutil()
    now = psutil.virtual_memory()
    return now.total, now.available


def _memory_without_psutil(table: Path = Path("/proc/meminfo")) -> tuple[int | None, int | None]:
    if table.exists():  # Linux: in KiB
        rows = dict(re.findall(r"^(\w+):\s+(\d+) kB", table.read_text(), flags=re.MULTILINE))
        return int(rows["MemTotal"]) * 1024, int(rows["MemAvailable"]) * 1024
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), None
    except (AttributeError, OSError, ValueError):
        return None, None


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def reachable(host: str, port: int, seconds: float) -> bool:
    """Whether a TCP connection opens in time; the name look-up counts too."""
    opened = threading.Event()

    def connect() -> None:
        try:
            socket.create_connection((host, port), timeout=seconds).close()
        except OSError:
            return
        opened.set()

    thread = threading.Thread(target=connect, daemon=True)  # a look-up cannot be timed out itself
    thread.start()
    thread.join(seconds)
    return opened.is_set()
