"""What passes between the benchmark and an engine's process: one JSON object a line.

Only the standard library is used here, since a peer may live in an environment of its own.

The first line to the process is the setup: {"folder", "dtype", "threads"}. It answers with what it
really runs: {"engine", "dtype", "threads", "weights"}. Every further line is a job: {"prompts":
token ids, "max_tokens": one for each, "settings"}; the answer is {"seconds", "token_ids",
"prompts": a fingerprint of those that it got}.
Outputs are greedy and run to their full length.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

WEIGHTS = "model.safetensors"


class Peer(Protocol):
    """An engine with its model loaded."""

    def facts(self) -> dict[str, Any]:
        """ "engine" with its version, "dtype" and "threads" as the loaded engine has them."""

    def prepare(self, job: dict[str, Any]) -> None:
        """What is not timed: settings applied, caches emptied."""

    def run(self, job: dict[str, Any]) -> list[list[int]]:
        """The output's token ids, for each prompt in order."""


def serve(make: Callable[[dict[str, Any]], Peer]) -> None:
    """Be the process of a peer until the input ends."""
    answers = _private_stdout()
    setup = json.loads(sys.stdin.readline())
    peer = make(setup)
    weights = fingerprint((Path(setup["folder"]) / WEIGHTS).read_bytes())
    print(json.dumps(peer.facts() | {"weights": weights}), file=answers, flush=True)
    for line in sys.stdin:
        job = json.loads(line)
        peer.prepare(job)
        began = time.perf_counter()
        token_ids = peer.run(job)
        seconds = time.perf_counter() - began
        prompts = fingerprint(json.dumps(job["prompts"]).encode())
        answer = {"seconds": seconds, "token_ids": token_ids, "prompts": prompts}
        print(json.dumps(answer), file=answers, flush=True)


def fingerprint(content: bytes) -> str:
    """The start of its SHA-256."""
    return hashlib.sha256(content).hexdigest()[:16]


def _private_stdout() -> Any:
    """A stream of our own on standard output; whatever libraries print goes to standard error."""
    sys.stdout.flush()
    own = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return own
