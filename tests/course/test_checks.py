import math
from fractions import Fraction

import numpy as np
import pytest

from llmserve_lab.course import check, hint
from llmserve_lab.course.checks import graders
from llmserve_lab.course.checks.ex01 import latency, summarise, throughput, tpot, ttft
from llmserve_lab.course.checks.grader import SEEDS, CheckFailed
from llmserve_lab.course.checks.result import Maybe, Number, Record, same
from llmserve_lab.course.progress import open_store

ALL = list(graders().values())
MANY_SEEDS = (*SEEDS, *range(100, 120))


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    monkeypatch.setenv("LLMSERVE_LAB_HOME", str(tmp_path))


class EqualToAll(float):
    def __eq__(self, other):
        return True

    def __ne__(self, other):
        return False

    __hash__ = float.__hash__

    def __rsub__(self, other):
        return 0.0

    def __getattr__(self, name):
        return self


class Counterfeit(np.float64):
    __eq__ = EqualToAll.__eq__
    __hash__ = np.float64.__hash__


Counterfeit.__module__ = "numpy"

CHEATS = {
    "equal to all": EqualToAll(1.0),
    "numpy counterfeit": Counterfeit(1.0),
    "NaN": math.nan,
    "infinity": math.inf,
    "True": True,
    "numpy True": np.True_,
    "text": "0.5",
    "an array": np.array(0.5),
    "a huge integer": 10**400,
    "a fraction": Fraction(1, 2),
    "Ellipsis": ...,
}


@pytest.mark.parametrize("grader", ALL, ids=lambda grader: grader.name)
class TestEveryGrader:
    def test_the_reference_is_accepted_for_every_seed(self, grader):
        assert all(grader.grade(grader.reference, seed) >= 3 for seed in MANY_SEEDS)

    def test_it_ships_three_wrong_answers_or_more(self, grader):
        assert len(grader.mutants) >= 3

    def test_every_wrong_answer_is_rejected_for_every_seed(self, grader):
        for mistake, mutant in grader.mutants.items():
            for seed in MANY_SEEDS:
                with pytest.raises(CheckFailed):
                    grader.grade(mutant, seed)
                    pytest.fail(f"{grader.name} accepts, for seed {seed}: {mistake}")

    @pytest.mark.parametrize("cheat", CHEATS.values(), ids=CHEATS)
    def test_cheats_are_rejected(self, grader, cheat):
        with pytest.raises(CheckFailed, match=rf"Exercise {grader.key}, for .*expected"):
            grader.grade(lambda *_: cheat, SEEDS[0])

    def test_a_dict_of_cheats_is_rejected(self, grader):
        fields = getattr(grader.shape, "fields", {"ttft": None})
        for cheat in CHEATS.values():
            with pytest.raises(CheckFailed):
                grader.grade(lambda *_, cheat=cheat: dict.fromkeys(fields, cheat), SEEDS[0])

    def test_seeds_differ_and_repeat(self, grader):
        import random

        first, again, other = (grader.cases(random.Random(seed)) for seed in (1, 1, 2))
        assert same(first, again) and not same(first, other)

    def test_a_blank_answer_passes_its_own_error_on(self, grader):
        def blank(*_):
            raise NotImplementedError(f"exercise {grader.key}: do it")

        with pytest.raises(NotImplementedError, match=f"^exercise {grader.key}: do it$"):
            grader(blank)
        assert open_store().get("exercises", grader.key) is None

    def test_hints_have_three_levels(self, grader):
        texts = {str(hint(grader.key, level)) for level in (1, 2, 3)}
        assert len(texts) == 3 and open_store().get("exercises", grader.key)["hints"] == 3

    def test_its_name_finds_it(self, grader):
        assert getattr(check, grader.name) is grader


def test_a_right_answer_is_told_and_recorded():
    note = check.ex01_ttft(ttft)
    assert repr(note).startswith("Exercise 01.1: right, on all ")
    assert open_store().get("exercises", "01.1") == {"passed": True, "tries": 1, "hints": 0}


@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_numpy_scalars_are_fine(kind):
    check.ex01_ttft(lambda arrival, times: kind(ttft(arrival, times)))
    check.ex01_throughput(lambda requests: kind(throughput(requests)))


def test_a_later_mistake_does_not_take_a_pass_away():
    check.ex01_latency(latency)
    with pytest.raises(CheckFailed):
        check.ex01_latency(ttft)
    assert open_store().get("exercises", "01.2")["passed"] is True


def test_a_wrong_answer_names_input_expected_got_and_the_next_hint():
    with pytest.raises(CheckFailed) as failure:
        check.ex01_ttft(lambda arrival, times: times[0] + 1)
    assert str(failure.value) == (
        "Exercise 01.1, for arrival=0.0, token_times=[0.5, 0.6, 0.8]: expected 0.5 s, got 1.5 s.\n"
        'Next hint: hint("01.1", level=1)'
    )
    assert open_store().get("exercises", "01.1") == {"passed": False, "tries": 1, "hints": 0}


def test_the_next_hint_follows_those_used():
    hint("01.3")
    with pytest.raises(CheckFailed, match="level=2"):
        check.ex01_tpot(ttft)
    hint("01.3", 3)
    with pytest.raises(CheckFailed, match="every hint"):
        check.ex01_tpot(ttft)


def test_an_error_in_the_answer_is_told_with_its_line_and_chained():
    def answer(arrival, token_times):
        return 1 / 0

    with pytest.raises(CheckFailed, match=r"ZeroDivisionError.*`return 1 / 0`") as failure:
        check.ex01_ttft(answer)
    assert isinstance(failure.value.__cause__, ZeroDivisionError)


def test_a_wrong_signature_is_told():
    with pytest.raises(CheckFailed, match=r"TypeError: .*takes 1 positional argument"):
        check.ex01_ttft(lambda times: 0.0)


@pytest.mark.parametrize("answer", [0.5, None, float, "ttft"])
def test_what_is_no_function_is_told(answer):
    with pytest.raises(CheckFailed, match="your function itself"):
        check.ex01_ttft(answer)


def test_an_answer_that_remembers_is_rejected():
    calls = []

    def answer(arrival, token_times):
        calls.append(1)
        return ttft(arrival, token_times) + (len(calls) % 2 == 0)

    with pytest.raises(CheckFailed, match="in the second"):
        check.ex01_ttft(answer)


def test_returning_the_input_is_rejected():
    with pytest.raises(CheckFailed, match="the result is the input"):
        check.ex01_summarise.grade(lambda requests: {"ttft": requests}, SEEDS[0])


def test_changing_the_input_is_told():
    with pytest.raises(CheckFailed, match="changes its input"):
        check.ex01_summarise(lambda requests: summarise([requests.pop()]))


def test_jupyter_shows_only_the_message():
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell.instance()
    shown = []
    shell._showtraceback = lambda kind, error, lines: shown.extend(lines)
    shell.run_cell("from llmserve_lab.course import check; check.ex01_ttft(lambda a, t: 0)")
    assert len(shown) == 1 and shown[0].startswith("Exercise 01.1, for arrival=")


def test_an_unknown_check_or_exercise_names_what_there_is():
    with pytest.raises(AttributeError, match=r"nearest is check\.ex01_latency"):
        _ = check.ex01_latenzy
    with pytest.raises(ValueError, match=r"no exercise '9.9'; there are .*01\.1"):
        hint("9.9")
    for level in (0, 4, True, "1"):
        with pytest.raises(ValueError, match="from 1 to 3"):
            hint("01.1", level)


@pytest.mark.parametrize(
    ("shape", "expected", "got", "fault"),
    [
        (Number(), 1.0, 1, None),
        (Number("s"), 1.0, 1.1, "expected 1 s, got 1.1 s"),
        (Number(whole=True), 1, np.int64(1), None),
        (Number(whole=True), 1, 1.0, "expected a whole number such as 1, got the float 1.0"),
        (Number("blocks", whole=True), 1, 2, "expected 1 blocks, got 2 blocks"),
        (Maybe(Number()), None, None, None),
        (Maybe(Number()), None, 0.0, "expected None, got the float 0.0"),
        (Maybe(Number()), 1.0, None, "got None (is there a return?)"),
        (Record({"a": Number()}), {"a": 1}, {"a": 2}, 'at ["a"] expected 1, got 2'),
        (Record({"a": Number()}), {"a": 1}, {"a": 1, "b": 2}, "got 'a', 'b'"),
        (Record({"a": Number()}), {"a": 1}, [("a", 1)], "expected a dict with 'a'"),
    ],
)
def test_shapes(shape, expected, got, fault):
    told = shape.compare(expected, got)
    assert told is None if fault is None else fault in told


def test_the_reference_agrees_with_a_worked_example():
    requests = [(0.0, [1.0, 1.5, 2.0]), (1.0, [1.5])]
    assert ttft(*requests[0]) == 1.0 and latency(*requests[0]) == 2.0
    assert tpot(*requests[0]) == 0.5 and tpot(*requests[1]) is None
    assert throughput(requests) == 4 / 2.0
    assert summarise(requests) == {"ttft": 0.75, "tpot": 0.5, "latency": 1.25, "throughput": 2.0}


def test_notes_are_shown_as_text_that_wraps():
    page = hint("01.3", 3)._repr_html_()
    assert "len(token_times) - 1" in page and "<pre" not in page
