"""Every engine that runs in this environment gives the same tokens for the same job."""

import os
import sys

import pytest

from benchmarks.peers import generate, generate_batch, ours
from benchmarks.peers.environment import python_of
from benchmarks.peers.protocol import WEIGHTS, fingerprint
from benchmarks.peers.worker import PeerError, Worker
from tests.conftest import character_tokenizer, tiny_llama

JOB = {
    "prompts": [[1, 2, 3, 4, 5], [6, 7], [8] * 9, [10, 11, 12]],
    "max_tokens": [6, 9, 2, 4],
}
SETTINGS = {
    ours.Ours: [{}, {"max_num_seqs": 2}, {"text": True}, {"enable_prefix_caching": True}],
    generate.Generate: [
        {"batch": batch, "order": order}
        for batch in (1, 3, 8)
        for order in ("given", "prompt", "output")
    ],
    generate_batch.GenerateBatch: [{"one call": True}, {"one call": False}],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("tiny")
    tiny_llama().save_pretrained(path)
    character_tokenizer().save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def setup(folder):
    return {"folder": str(folder), "dtype": "float32", "threads": 1}


@pytest.fixture(scope="module")
def expected(setup):
    """By transformers, one request at a time."""
    alone = generate.Generate(setup)
    return [
        alone.run({"prompts": [p], "max_tokens": [n], "settings": {"batch": 1, "order": "given"}})[
            0
        ]
        for p, n in zip(JOB["prompts"], JOB["max_tokens"], strict=True)
    ]


@pytest.mark.parametrize("kind", SETTINGS)
def test_all_agree(kind, setup, expected):
    assert list(map(len, expected)) == JOB["max_tokens"]
    peer = kind(setup)
    for settings in SETTINGS[kind]:
        job = JOB | {"settings": settings}
        for _ in range(2):  # the second run finds what the first one left
            peer.prepare(job)
            assert peer.run(job) == expected, settings
    assert (peer.facts()["dtype"], peer.facts()["threads"]) == ("torch.float32", 1)


def test_ours_starts_every_run_with_an_empty_cache(setup):
    peer = ours.Ours(setup)
    job = JOB | {"settings": {"enable_prefix_caching": True}}
    for _ in range(2):
        peer.prepare(job)
        assert peer.llm.metrics.prefix_hits == 0
        assert not any(peer.llm.pool.cached())
        peer.run(job)


def test_batches_are_sorted_as_asked():
    prompts, limits = [[0] * 5, [0] * 2, [0] * 9], [3, 8, 1]
    assert generate.batches(prompts, limits, 2, "given") == [[0, 1], [2]]
    assert generate.batches(prompts, limits, 2, "prompt") == [[1, 0], [2]]
    assert generate.batches(prompts, limits, 2, "output") == [[2, 0], [1]]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
class TestWorker:
    """A peer in a process of its own."""

    def test_it_says_what_it_runs_and_does_what_it_is_asked(self, folder, expected):
        worker = Worker("ours", python_of("ours"), str(folder), "float32", 1)
        try:
            assert worker.facts["weights"] == fingerprint((folder / WEIGHTS).read_bytes())
            assert (worker.facts["dtype"], worker.facts["threads"]) == ("torch.float32", 1)
            answers = [worker.run(JOB | {"settings": {}}) for _ in range(2)]
            assert [answer["token_ids"] for answer in answers] == [expected] * 2
            assert all(answer["seconds"] > 0 for answer in answers)
            assert answers[0]["prompts"] == answers[1]["prompts"]
            assert _state(worker) == "T"  # stopped between the runs
        finally:
            worker.close()
        with pytest.raises(ProcessLookupError):
            os.killpg(worker._process.pid, 0)

    def test_a_failure_shows_the_last_lines(self, tmp_path):
        with pytest.raises(PeerError, match=r"(?s)ours gave no answer.*ModelNotFoundError"):
            Worker("ours", python_of("ours"), str(tmp_path), "float32", 1)


def _state(worker):
    with open(f"/proc/{worker._process.pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0]
