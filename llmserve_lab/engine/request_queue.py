"""Requests that wait, in the order in which they will be served."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from itertools import islice

from llmserve_lab.engine.request import Request


class RequestQueue:
    """First in, first out. Used like a deque, but removing any request is O(1) too, so that an
    abort among 100,000 waiting requests costs no scan."""

    def __init__(self, requests: Iterable[Request] = ()) -> None:
        self._requests: OrderedDict[Request, None] = OrderedDict.fromkeys(requests)

    def append(self, request: Request) -> None:
        self._requests[request] = None

    def appendleft(self, request: Request) -> None:
        """Put a request before all others: one that was preempted, and was served before them."""
        self._requests[request] = None
        self._requests.move_to_end(request, last=False)

    def popleft(self) -> Request:
        if not self:
            raise IndexError("No request is waiting.")
        return self._requests.popitem(last=False)[0]

    def remove(self, request: Request) -> None:
        """Take out one request, wherever it is.

        Raises:
            ValueError: it is not here.
        """
        if request not in self._requests:
            raise ValueError(f"Request {request.request_id!r} is not waiting.")
        del self._requests[request]

    def extend(self, requests: Iterable[Request]) -> None:
        for request in requests:
            self.append(request)

    def clear(self) -> None:
        self._requests.clear()

    def __getitem__(self, index: int) -> Request:
        """The request at `index`; O(1) for the next and the last one."""
        ahead = iter(self) if index >= 0 else reversed(list(self))
        steps = index if index >= 0 else -index - 1
        for request in islice(ahead, steps, None):
            return request
        raise IndexError(f"{len(self)} requests are waiting; there is none at {index}.")

    def __contains__(self, request: object) -> bool:
        return request in self._requests

    def __iter__(self) -> Iterator[Request]:
        return iter(self._requests)

    def __len__(self) -> int:
        return len(self._requests)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({[request.request_id for request in self]})"
