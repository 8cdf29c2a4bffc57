"""Decoding without a KV cache, on the real engine."""

from __future__ import annotations

from llmserve_lab.engine.scheduler import Scheduled, Scheduler


class ForgetfulScheduler(Scheduler):
    """Takes nothing for computed: before each step every running request starts at its first token
    again, as a server without a KV cache does. What is in the cache is written again before it is
    read.

    All tokens of the running requests must fit into a step (`max_num_batched_tokens`): with fewer,
    a request would stay in its prompt for ever.
    """

    can_fork = False

    def schedule(self) -> list[Scheduled]:
        for request in self.running:
            request.num_computed_tokens = 0
        return super().schedule()
