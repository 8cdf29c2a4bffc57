"""Which call waits for which request: several may be open at once, and share the engine's steps."""

from __future__ import annotations

from collections.abc import Iterator

from llmserve_lab.engine.core import Engine
from llmserve_lab.engine.families import Families
from llmserve_lab.engine.outputs import TokenEvent
from llmserve_lab.engine.results import Results
from llmserve_lab.engine.threads import computing_with


class Calls:
    """Queues the requests of a call, runs the engine for whoever asks, and gives each event to the
    call that waits for it. num_threads: see `computing_with`."""

    def __init__(self, engine: Engine, num_threads: int | None = None) -> None:
        self._engine, self._num_threads = engine, num_threads
        self._open: dict[str, Results] = {}  # by request id
        self._families = Families()
        self._unclaimed: list[TokenEvent] = []  # of the requests that wait for `step`

    def queue(self, results: Results) -> None:
        """Hand a call's requests to the engine; continuations follow the one they fork from."""
        self._families.add(results.requests)
        followers = {fork for request in results.requests.values() for fork in request.forks}
        for request in results.requests.values():
            if request not in followers:
                self._engine.add(request)

    def run(self, results: Results) -> Iterator[TokenEvent]:
        """Yield the events of one call until it is done; closing the iterator aborts the rest."""
        self._open |= dict.fromkeys(results.requests, results)
        try:
            self.queue(results)
            while results.inbox or (results.unfinished and self._engine.has_work):
                if results.inbox:
                    yield results.inbox.popleft()
                else:
                    self._advance()
        finally:
            self._close(results)

    def members(self, request_id: str) -> list[str]:
        """The open requests that share this id; none if it is one request's own."""
        return self._families.members(request_id)

    def step(self) -> list[TokenEvent]:
        """Run one step; returns what came of the requests that no open call waits for."""
        self._advance()
        events, self._unclaimed = self._unclaimed, []
        return events

    def _close(self, results: Results) -> None:
        for request_id in results.unfinished:
            self._engine.abort(request_id)
        self._deliver(self._engine.abort_asked())
        for request_id in results.requests:
            del self._open[request_id]

    def _advance(self) -> None:
        self._engine.wait()
        with computing_with(self._num_threads):
            events = self._engine.step()
        self._deliver(events)

    def _deliver(self, events: list[TokenEvent]) -> None:
        for event in events:
            if event.finish_reason is not None:
                self._families.end(event.request_id)
            call = self._open.get(event.request_id)
            if call is None:
                self._unclaimed.append(event)
            else:
                call.note(event)
