"""Lengths, arrivals, prefixes and files: the same with the same seed, and bad rows by name."""

import math
import statistics
from itertools import pairwise
from random import Random

import pytest

from llmserve_lab.simulate import (
    Ask,
    AtOnce,
    Constant,
    Empirical,
    Fixed,
    Gamma,
    LogNormal,
    Poisson,
    SharedPrefix,
    Uniform,
    Workload,
    read_workload,
    write_workload,
)
from llmserve_lab.simulate.prompts import NumberedPrompts, RandomPrompts

MANY = 4000


def drawn(lengths, count=MANY):
    rng = Random(0)
    return [lengths.draw(rng) for _ in range(count)]


def gaps(arrivals, count=MANY):
    times = [ask.arrival for ask in Workload.draw(count, Constant(1), Constant(1), arrivals).asks]
    return [times[0]] + [b - a for a, b in pairwise(times)]


def test_lengths_have_their_distribution():
    assert set(drawn(Constant(7))) == {7}
    assert set(drawn(Uniform(3, 6))) == {3, 4, 5, 6}
    assert set(drawn(Empirical([2, 9]))) == {2, 9}
    long_tail = drawn(LogNormal(100, 0.5, 20, 1000))
    assert statistics.median(long_tail) == pytest.approx(100, rel=0.05)
    assert statistics.mean(long_tail) == pytest.approx(100 * 2.718 ** (0.5**2 / 2), rel=0.05)
    assert set(drawn(LogNormal(100, 3, 50, 150))) <= set(range(50, 151))


def test_arrivals_have_their_rate_and_burstiness():
    assert gaps(AtOnce()) == [0.0] * MANY
    assert gaps(Fixed(4.0)) == pytest.approx([0.25] * MANY)
    for arrivals, variation in (
        (Poisson(4.0), 1.0),
        (Gamma(4.0, 0.25), 2.0),
        (Gamma(4.0, 4.0), 0.5),
    ):
        found = gaps(arrivals)
        mean = statistics.mean(found)
        assert mean == pytest.approx(0.25, rel=0.1)
        assert statistics.stdev(found) / mean == pytest.approx(variation, rel=0.1)


def test_the_seed_decides_everything():
    def draw(seed):
        prefix = SharedPrefix(Uniform(1, 9), count=3, share=0.5)
        return Workload.draw(50, LogNormal(30, 1), Uniform(1, 99), Poisson(1.0), prefix, seed)

    assert draw(1) == draw(1)
    assert draw(1) != draw(2)
    slower = Workload.draw(50, Uniform(1, 99), Constant(1), Poisson(1.0))
    faster = Workload.draw(50, Uniform(1, 99), Constant(1), Poisson(2.0))
    lengths = [[ask.prompt_tokens for ask in load.asks] for load in (slower, faster)]
    assert lengths[0] == lengths[1]  # so that two rates are compared on the same requests


def test_prefixes_are_shared_as_often_as_asked():
    prefix = SharedPrefix(Constant(10), count=3, share=0.5, skew=1.0)
    asks = Workload.draw(MANY, Constant(5), Constant(1), None, prefix).asks
    by_name = {
        name: sum(ask.prefix == name for ask in asks) / MANY
        for name in map("prefix-{}".format, range(3))
    }
    for index, share in enumerate((6 / 22, 3 / 22, 2 / 22)):  # half of 1 : 1/2 : 1/3
        assert by_name[f"prefix-{index}"] == pytest.approx(share, rel=0.15)
    assert {(a.prompt_tokens, a.prefix_tokens) for a in asks} == {(15, 10), (5, 0)}


@pytest.mark.parametrize("prompts", [NumberedPrompts(), RandomPrompts(50)], ids=["ids", "random"])
def test_prompts_are_alike_where_they_share_a_prefix_and_nowhere_else(prompts):
    shared = Ask(0.0, 40, 1, "a", 30)
    first, second = prompts.make(shared, 1), prompts.make(shared, 2)
    other = prompts.make(Ask(0.0, 40, 1, "b", 30), 3)
    plain = prompts.make(Ask(0.0, 40, 1), 4)
    assert first[:30] == second[:30]
    assert first[30:] != second[30:]
    assert [len(p) for p in (first, second, other, plain)] == [40] * 4
    assert len({tuple(p[:4]) for p in (first, other, plain)}) == 3


def test_random_prompts_stay_in_the_vocabulary():
    assert set(RandomPrompts(5).make(Ask(0.0, 500, 1, "a", 200), 1)) == set(range(5))


def test_some_clients_leave():
    plain = Workload.closed_loop(MANY, Constant(5), Constant(1), users=3)
    left = plain.with_leavers(share=0.25, patience=2.0)
    patience = [ask.abort_after for ask in left.asks if ask.abort_after < math.inf]
    assert len(patience) / MANY == pytest.approx(0.25, rel=0.1)
    assert statistics.mean(patience) == pytest.approx(2.0, rel=0.1)
    assert (left.users, len(left.asks)) == (3, MANY)
    assert left == plain.with_leavers(0.25, 2.0) != plain.with_leavers(0.25, 2.0, seed=1)


BAD = {
    "leavers": (lambda: Workload((Ask(0.0, 1, 1),)).with_leavers(2.0, 1.0), "share must be"),
    "no request": (lambda: Workload(()), "at least one request"),
    "empty prompt": (lambda: Ask(0.0, 0, 1), "prompt_tokens must be at least 1"),
    "half a token": (lambda: Ask(0.0, 1, 1.5), "output_tokens must be a whole number"),
    "before the start": (lambda: Ask(-1.0, 1, 1), "arrival must be a finite number"),
    "long prefix": (lambda: Ask(0.0, 4, 1, "a", 5), "prefix_tokens must be at most 4"),
    "leaves before": (lambda: Ask(0.0, 1, 1, abort_after=-1.0), "abort_after must be 0 or more"),
    "no users": (lambda: Workload((Ask(0.0, 1, 1),), users=0), "users must be at least 1"),
    "no rate": (lambda: Poisson(0.0), "rate must be"),
    "no shape": (lambda: Gamma(1.0, 0.0), "burstiness must be"),
    "upside down": (lambda: Uniform(5, 4), "high must be at least 5"),
    "nothing seen": (lambda: Empirical([]), "at least one length"),
    "median outside": (lambda: LogNormal(5, 1, 10, 20), "median must be"),
    "share": (lambda: SharedPrefix(Constant(1), share=2.0), "share must be"),
}


@pytest.mark.parametrize("key", BAD)
def test_bad_input_is_named(key):
    make, message = BAD[key]
    with pytest.raises((ValueError, TypeError), match=message):
        make()


def test_requests_are_put_in_order():
    late, early = Ask(2.0, 1, 1), Ask(1.0, 2, 2)
    assert Workload((late, early)).asks == (early, late)


def test_a_workload_survives_a_file(tmp_path):
    prefix = SharedPrefix(Uniform(1, 9), count=3, share=0.5)
    drawn = Workload.draw(50, LogNormal(30, 1), Uniform(1, 99), Gamma(1.0, 0.2), prefix)
    first = drawn.asks[0].arrival
    write_workload(tmp_path / "load.csv", drawn)
    read = read_workload(tmp_path / "load.csv")
    assert [a.arrival for a in read.asks] == pytest.approx([a.arrival - first for a in drawn.asks])
    assert [(a.prompt_tokens, a.output_tokens, a.prefix, a.prefix_tokens) for a in read.asks] == [
        (a.prompt_tokens, a.output_tokens, a.prefix, a.prefix_tokens) for a in drawn.asks
    ]


def test_files_of_others_with_dates_and_other_names(tmp_path):
    path = tmp_path / "azure.csv"
    path.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:15:46.5,4808,10\n"
        "2023-11-16 18:15:50.0,3180,8\n"
    )
    names = {"arrival": "TIMESTAMP", "prompt_tokens": "ContextTokens"}
    read = read_workload(path, names | {"output_tokens": "GeneratedTokens"})
    assert read.asks == (Ask(0.0, 4808, 10), Ask(3.5, 3180, 8))


def test_json_files(tmp_path):
    path = tmp_path / "load.json"
    path.write_text('[{"arrival": 5, "prompt_tokens": 3, "output_tokens": 2, "priority": 1}]')
    assert read_workload(path).asks == (Ask(0.0, 3, 2, priority=1),)


FILES = {
    "empty": ("a.csv", "arrival,prompt_tokens,output_tokens\n", "a.csv holds no requests"),
    "no column": ("a.csv", "arrival,prompt_tokens\n1,2\n", "row 1: output_tokens is missing"),
    "no number": (
        "a.csv",
        "arrival,prompt_tokens,output_tokens\n0,1,1\n0,many,1\n",
        "row 2: prompt_tokens must be a whole number, not 'many'",
    ),
    "no time": (
        "a.csv",
        "arrival,prompt_tokens,output_tokens\nsoon,1,1\n",
        "row 1: arrival must be a number of seconds, not 'soon'",
    ),
    "half": (
        "a.csv",
        "arrival,prompt_tokens,output_tokens\n0,1.5,1\n",
        "row 1: prompt_tokens must be a whole number",
    ),
    "no tokens": (
        "a.csv",
        "arrival,prompt_tokens,output_tokens\n0,1,1\n1,0,1\n",
        "row 2: prompt_tokens must be at least 1, not 0",
    ),
    "not a number": (
        "a.csv",
        "arrival,prompt_tokens,output_tokens\n0,1,1\nnan,1,1\n",
        "row 2: arrival must be a finite number",
    ),
    "no json": ("a.json", "{", "a.json is not JSON"),
    "no list": ("a.json", '{"arrival": 0}', "must hold a list of objects"),
    "binary": ("a.csv", b"arrival\n\xff\n", "is not a CSV file"),
}


@pytest.mark.parametrize("key", FILES)
def test_bad_rows_are_named(tmp_path, key):
    name, text, message = FILES[key]
    (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ValueError, match=message) as error:
        read_workload(tmp_path / name)
    assert "\n" not in str(error.value)


def test_an_unknown_column_is_named(tmp_path):
    with pytest.raises(ValueError, match="no column 'tokens'"):
        read_workload(tmp_path / "a.csv", {"tokens": "x"})
