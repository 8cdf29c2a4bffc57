"""What a simulation asks of the engine: no torch, no text, arrivals before now."""

from llmserve_lab.engine.core import Engine
from llmserve_lab.engine.request import Request
from llmserve_lab.engine.sampling_params import SamplingParams
from llmserve_lab.engine.scheduler import Limits, Scheduler
from llmserve_lab.kv_cache import BlockPool


class Zeros:
    """A model that always says token 0."""

    eos_token_ids = frozenset()

    def run(self, batch):
        return None

    def sample(self, logits, requests):
        return [0] * len(requests)

    def forget(self, request):
        pass


def engine_at(seconds):
    scheduler = Scheduler()
    scheduler.bind(BlockPool(8, 4), Limits(4, 64))
    return Engine(Zeros(), scheduler, Zeros(), None, 32, lambda: seconds)


def test_without_a_tokenizer_tokens_come_without_text():
    engine = engine_at(0.0)
    engine.add(Request("a", [1, 2], SamplingParams(max_tokens=2, stop="x")))
    first, second = engine.step() + engine.step()
    assert [(e.token_id, e.text, e.finish_reason) for e in (first, second)] == [
        (0, "", None),
        (0, "", "length"),
    ]
    engine.add(Request("b", [1, 2], SamplingParams()))
    engine.abort("b")
    (event,) = engine.step()
    assert (event.text, event.finish_reason) == ("", "abort")
    assert not engine.detokenizers


def test_an_arrival_may_lie_before_now():
    engine = engine_at(5.0)
    early, now = (Request(name, [1], SamplingParams(max_tokens=1)) for name in ("early", "now"))
    engine.add(early, arrival=3.0)
    engine.add(now)
    engine.step()
    assert (early.arrival, now.arrival) == (3.0, 5.0)
    assert early.first_scheduled - early.arrival == 2.0
