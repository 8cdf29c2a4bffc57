"""A peer's process, from the benchmark's side. Linux only: a process that is not at work is
stopped, since engines keep spinning while they wait."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from benchmarks.peers.environment import ROOT, variables

LAST_LINES = 15  # of a failed peer's output
PATIENCE = 20  # seconds for a process to end by itself


class PeerError(RuntimeError):
    """A peer's process ended or answered nonsense."""


class Worker:
    """Starts `benchmarks.peers.<peer>`. facts: what it says it runs.

    Raises:
        PeerError: it could not start; the message ends with its last lines.
    """

    def __init__(self, peer: str, python: str, folder: str, dtype: str, threads: int) -> None:
        self.peer = peer
        self._log = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
        self._process = subprocess.Popen(
            [python, "-m", f"benchmarks.peers.{peer}"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True,
            cwd=ROOT, env=variables(peer, threads), start_new_session=True,
        )  # fmt: skip
        self.facts = self._ask({"folder": folder, "dtype": dtype, "threads": threads})
        self._signal(signal.SIGSTOP)

    def run(self, job: dict[str, Any]) -> dict[str, Any]:
        """Do a job; returns its "seconds", "cpu_seconds" (of all its processes) and "token_ids"."""
        with self._awake():
            before = self._cpu_seconds()
            answer = self._ask(job)
            return answer | {"cpu_seconds": self._cpu_seconds() - before}

    def close(self) -> None:
        """End the process, and all that it started."""
        self._signal(signal.SIGCONT)
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._signal(signal.SIGKILL)  # what it left behind
        self._process.stdout.close()
        self._log.close()

    @contextmanager
    def _awake(self) -> Iterator[None]:
        self._signal(signal.SIGCONT)
        try:
            yield
        finally:
            self._signal(signal.SIGSTOP)

    def _ask(self, message: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()
            return json.loads(self._process.stdout.readline())
        except (OSError, ValueError) as error:
            self._log.seek(0)
            last = "".join(self._log.readlines()[-LAST_LINES:])
            raise PeerError(f"{self.peer} gave no answer. Its last lines:\n{last}") from error

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError):  # it has ended
            os.killpg(self._process.pid, number)
            if number == signal.SIGSTOP:  # takes effect a little later
                os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def _cpu_seconds(self) -> float:
        """User and system time of the living processes of the peer's session."""
        return sum(_times(path, self._process.pid) for path in Path("/proc").glob("[0-9]*/stat"))


def _times(path: Path, session: int) -> float:
    ticks = os.sysconf("SC_CLK_TCK")
    try:
        fields = path.read_text().rpartition(")")[2].split()
    except OSError:  # it has just ended
        return 0.0
    return (int(fields[11]) + int(fields[12])) / ticks if int(fields[3]) == session else 0.0
