"""The queues against plain sorted lists, under random operations."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmserve_lab.engine.priority import STALE_PER_LIVE, PriorityQueue
from llmserve_lab.engine.request import Request
from llmserve_lab.engine.request_queue import RequestQueue
from llmserve_lab.engine.sampling_params import SamplingParams

OPERATIONS = st.lists(
    st.tuples(st.sampled_from(["append", "appendleft", "popleft", "remove"]), st.integers(0, 99)),
    max_size=60,
)


def make(number, priority=0):
    return Request(f"{number}", [1], SamplingParams(), priority=priority, number=number)


def rank(request):
    return (request.priority, 0.0, request.number)


@given(OPERATIONS, st.booleans())
def test_a_queue_is_a_list_with_quick_removal(operations, by_priority):
    queue, wanted = PriorityQueue(rank) if by_priority else RequestQueue(), []
    for number, (operation, value) in enumerate(operations):
        if operation.startswith("append"):
            request = make(number, priority=value % 4)
            getattr(queue, operation)(request)
            wanted.insert(0 if operation == "appendleft" else len(wanted), request)
        elif wanted:
            chosen = wanted[0] if operation == "popleft" else wanted[value % len(wanted)]
            wanted.remove(chosen)
            assert queue.popleft() is chosen if operation == "popleft" else True
            if operation == "remove":
                queue.remove(chosen)
            assert chosen not in queue
        if by_priority:
            wanted.sort(key=rank)
        assert list(queue) == wanted
        assert len(queue) == len(wanted)
        assert bool(queue) == bool(wanted)
        assert all(request in queue for request in wanted)
        for index in range(-len(wanted), len(wanted)):
            assert queue[index] is wanted[index]


@pytest.mark.parametrize("queue", [RequestQueue(), PriorityQueue(rank)], ids=["fifo", "priority"])
def test_what_is_not_there(queue):
    with pytest.raises(ValueError, match="'7' is not waiting"):
        queue.remove(make(7))
    with pytest.raises(IndexError):
        queue.popleft()
    with pytest.raises(IndexError, match="0 requests are waiting"):
        queue[0]
    queue.extend([make(1), make(2)])
    assert repr(queue) == f"{type(queue).__name__}(['1', '2'])"
    queue.clear()
    assert list(queue) == []
    queue.append(make(3))
    assert queue[0].request_id == "3"


def test_a_request_that_comes_back_is_there_once():
    """A preempted request may find an entry of its former stay."""
    queue = PriorityQueue(rank)
    first, second = make(1), make(2)
    for _ in range(3):
        queue.extend([first, second])
        queue.remove(first)
        queue.append(first)
        assert [queue.popleft(), queue.popleft()] == [first, second]
        assert not queue


def test_aborted_requests_do_not_pile_up():
    queue = PriorityQueue(rank)
    queue.append(make(0, priority=-1))  # stays at the head, so that nothing below comes up
    for number in range(1, 1000):
        request = make(number)
        queue.append(request)
        queue.remove(request)
    assert len(queue._heap) <= STALE_PER_LIVE * 2 + 1
