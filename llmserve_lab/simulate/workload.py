"""What is asked of a server, and when."""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import accumulate, islice
from random import Random

from llmserve_lab.engine.checks import require_count, require_number
from llmserve_lab.simulate.arrivals import Arrivals, AtOnce
from llmserve_lab.simulate.lengths import Lengths
from llmserve_lab.simulate.shared_prefix import SharedPrefix


@dataclass(frozen=True, slots=True, order=True)
class Ask:
    """One request. arrival: seconds from the start. prompt_tokens include the `prefix_tokens` that
    all prompts with the same `prefix` begin with. abort_after: seconds until its client leaves."""

    arrival: float
    prompt_tokens: int
    output_tokens: int
    prefix: str = ""
    prefix_tokens: int = 0
    priority: int = 0
    abort_after: float = math.inf

    def __post_init__(self) -> None:
        require_number("arrival", self.arrival, 0.0, math.inf)
        require_count("prompt_tokens", self.prompt_tokens, at_least=1)
        require_count("output_tokens", self.output_tokens, at_least=1)
        require_count("prefix_tokens", self.prefix_tokens, 0, self.prompt_tokens)
        if not self.abort_after >= 0:
            raise ValueError(f"abort_after must be 0 or more seconds, not {self.abort_after}.")


@dataclass(frozen=True, slots=True)
class Workload:
    """Requests, in order of arrival. An open loop sends each at its time, whatever happens. With
    `users` it is a closed loop: arrivals are ignored, and each user sends the next request
    `think_seconds` after the last one ended."""

    asks: tuple[Ask, ...]
    users: int | None = None
    think_seconds: float = 0.0

    def __post_init__(self) -> None:
        if not self.asks:
            raise ValueError("A workload needs at least one request.")
        if self.users is not None:
            require_count("users", self.users, at_least=1)
        require_number("think_seconds", self.think_seconds, 0.0, math.inf)
        in_order = sorted(self.asks, key=lambda ask: ask.arrival)
        object.__setattr__(self, "asks", tuple(in_order))

    @classmethod
    def draw(
        cls,
        count: int,
        prompts: Lengths,
        outputs: Lengths,
        arrivals: Arrivals | None = None,
        prefix: SharedPrefix | None = None,
        seed: int = 0,
    ) -> Workload:
        """`count` requests of an open loop; all at once unless `arrivals` says otherwise. The same
        seed gives the same requests. prompts: without the shared prefix."""
        require_count("count", count, at_least=1)
        gaps = (arrivals or AtOnce()).gaps(Random(f"{seed} arrivals"))
        times = accumulate(islice(gaps, count))
        rng = Random(f"{seed} lengths")
        asks = [Ask(time, prompts.draw(rng), outputs.draw(rng)) for time in times]
        return cls(tuple(asks if prefix is None else _prefixed(asks, prefix, seed)))

    @classmethod
    def closed_loop(
        cls,
        count: int,
        prompts: Lengths,
        outputs: Lengths,
        users: int,
        think_seconds: float = 0.0,
        prefix: SharedPrefix | None = None,
        seed: int = 0,
    ) -> Workload:
        """`count` requests by `users`, each with one under way at any time."""
        asks = cls.draw(count, prompts, outputs, None, prefix, seed).asks
        return cls(asks, users, think_seconds)

    def with_leavers(self, share: float, patience: float, seed: int = 0) -> Workload:
        """The same requests, but each client leaves with probability `share`, after a time that is
        exponential with mean `patience` seconds."""
        require_number("share", share, 0.0, 1.0)
        require_number("patience", patience, 1e-9, math.inf)
        rng = Random(f"{seed} leavers")
        asks = []
        for ask in self.asks:
            leaves, after = rng.random() < share, rng.expovariate(1 / patience)
            asks.append(replace(ask, abort_after=after) if leaves else ask)
        return replace(self, asks=tuple(asks))

    @property
    def num_output_tokens(self) -> int:
        """Asked for, over all requests."""
        return sum(ask.output_tokens for ask in self.asks)

    def feed(self, start: float) -> Feed:
        """The requests of one run that starts at `start`."""
        if self.users is None:
            return Feed(self.asks, (), start)
        at_start = [replace(ask, arrival=0.0) for ask in self.asks[: self.users]]
        return Feed(at_start, self.asks[self.users :], start, self.think_seconds)


class Feed:
    """Gives out the requests of one run: those whose time has come, and those that follow from the
    end of others. Times are those of the run's clock; `Ask.arrival` counts from `start`."""

    def __init__(
        self, asks: Iterable[Ask], backlog: Iterable[Ask], start: float, think_seconds: float = 0.0
    ) -> None:
        self._pending = [(start + ask.arrival, index, ask) for index, ask in enumerate(asks)]
        self._backlog, self._start = deque(backlog), start
        self._think_seconds, self._count = think_seconds, len(self._pending)
        heapq.heapify(self._pending)

    @property
    def next_time(self) -> float:
        """When the next request comes, as far as is known; infinite without one."""
        return self._pending[0][0] if self._pending else math.inf

    def due(self, now: float) -> list[tuple[float, Ask]]:
        """Take the requests whose time has come, oldest first, with their times."""
        asks = []
        while self._pending and self._pending[0][0] <= now:
            time, _, ask = heapq.heappop(self._pending)
            asks.append((time, ask))
        return asks

    def ended(self, now: float) -> None:
        """A request ended: in a closed loop its user sends the next one."""
        if self._backlog:
            time = now + self._think_seconds
            ask = replace(self._backlog.popleft(), arrival=time - self._start)
            heapq.heappush(self._pending, (time, self._count, ask))
            self._count += 1


def _prefixed(asks: list[Ask], prefix: SharedPrefix, seed: int) -> list[Ask]:
    """The requests, those that are chosen with a prefix before their own tokens."""
    rng = Random(f"{seed} prefixes")
    named, weights = prefix.prefixes(rng), prefix.weights()
    found = []
    for ask in asks:
        (name, length), chosen = rng.choices(named, weights)[0], rng.random() < prefix.share
        tokens = ask.prompt_tokens + length
        found.append(
            replace(ask, prompt_tokens=tokens, prefix=name, prefix_tokens=length) if chosen else ask
        )
    return found
