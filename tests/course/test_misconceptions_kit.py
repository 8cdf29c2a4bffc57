"""What chapter 11 is made of: orders of service, decoding side by side, beliefs that change."""

from __future__ import annotations

import pytest

from llmserve_lab import LLM, SamplingParams, load
from llmserve_lab.course import misconception, misconceptions, predict, quiz, reveal
from llmserve_lab.course.belief_change import STANCES, BeliefChange, belief_changes
from llmserve_lab.course.experiments import held_out_prompts
from llmserve_lab.course.gpu_service import serve_on_gpu
from llmserve_lab.course.jacobi import jacobi_passes, refine, right_so_far
from llmserve_lab.course.misconceptions import catalogue
from llmserve_lab.course.progress import open_store
from llmserve_lab.course.serving_order import serve_at_once


@pytest.fixture(scope="module")
def model():
    return load("lab-target", dtype="float32")


class TestServingOrder:
    def test_order_moves_waits_and_not_throughput(self, model):
        prompts = held_out_prompts(model.tokenizer, 3, 8)
        came = serve_at_once(model, prompts, [9, 2, 2], slots=1)
        short = serve_at_once(model, prompts, [9, 2, 2], slots=1, shortest_first=True)
        assert (came.steps, came.tokens, came.waits) == (13, 13, (9, 11, 13))
        assert (short.steps, short.tokens, short.waits) == (13, 13, (2, 4, 13))
        assert came.median_wait == 11 and short.tokens_per_step == 1
        assert "half done after 4" in str(short)

    def test_two_at_a_time(self, model):
        served = serve_at_once(model, held_out_prompts(model.tokenizer, 2, 8), [3, 3], slots=2)
        assert (served.steps, served.tokens_per_step, served.waits) == (3, 2, (3, 3))


class TestJacobi:
    @pytest.fixture
    def prompt(self, model):
        return held_out_prompts(model.tokenizer, 1, 24, seed=2)[0]["prompt_token_ids"]

    @pytest.fixture
    def answer(self, model, prompt):
        params = SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True)
        (output,) = LLM(model).generate({"prompt_token_ids": prompt}, params)
        return list(output.outputs[0].token_ids)

    def test_any_guess_ends_at_the_greedy_text(self, model, prompt, answer):
        for guess in ([0] * 8, list(range(8))):
            passes = jacobi_passes(model, prompt, guess)
            assert passes[-1] == answer and len(passes) <= 9
            assert all(right > done for done, right in enumerate(right_so_far(passes)[:8]))

    def test_the_finished_text_is_confirmed_in_one_pass(self, model, prompt, answer):
        assert jacobi_passes(model, prompt, answer) == [answer]

    def test_a_pass_is_right_as_far_as_its_guess_and_one_further(self, model, prompt, answer):
        guess = [*answer[:3], answer[3] + 1, *answer[4:]]
        assert refine(model, prompt, guess)[:4] == answer[:4]

    def test_right_so_far(self):
        assert right_so_far([[1, 9, 3], [1, 2, 9], [1, 2, 3]]) == [1, 2, 3]

    def test_nothing_to_refine_is_refused(self, model):
        with pytest.raises(ValueError, match="at least one prompt token"):
            refine(model, [], [1])


def test_the_gpu_service_is_the_same_each_time():
    first, again = (serve_on_gpu(4, count=8) for _ in range(2))
    assert first.summary() == again.summary() and len(first.finished) == 8
    assert serve_on_gpu(8, count=8).request_throughput > first.request_throughput


class TestBeliefChange:
    @pytest.mark.parametrize(
        ("stance", "confidence", "held"),
        [("agree", 90, 90), ("disagree", 90, 10), ("partly", 90, 50), (None, None, None)],
    )
    def test_how_far_it_was_held(self, stance, confidence, held):
        assert BeliefChange("x", stance, confidence).held == held

    @pytest.mark.parametrize(
        ("tries", "solved", "said"),
        [
            (0, False, "not answered yet"),
            (2, False, "not right yet"),
            (1, True, "right at the first try"),
            (3, True, "right at try 3"),
        ],
    )
    def test_what_came_after(self, tries, solved, said):
        assert BeliefChange("x", tries=tries, solved=solved).after == said

    def test_what_the_progress_file_holds(self, shown, capsys):
        asked = {f"11.{name}": (name, f"11.retest.{name}") for name in ("latency", "batch")}
        predict("11.latency", "?", choices=STANCES, guess="agree", confidence=80)
        quiz("11.retest.latency", answer=1)
        quiz("11.retest.latency", answer=2)
        misconception("11.latency").refute()
        latency, batch = belief_changes(asked)
        assert latency == BeliefChange("latency", "agree", 80, False, True, 2, True)
        assert batch == BeliefChange("batch")
        assert latency.before == "agree, 80% sure"

    def test_a_default_is_no_belief_and_a_late_one_is_marked(self, shown):
        asked = {"11.batch": ("batch", "11.retest.batch")}
        predict("11.batch", "?", choices=STANCES, default="partly")
        reveal("11.batch", "disagree")
        assert belief_changes(asked)[0].stance is None
        predict("11.batch", "?", choices=STANCES, guess="disagree", confidence=100)
        assert belief_changes(asked)[0].before == "disagree, 100% sure, after the result"

    def test_an_answer_to_an_older_question_is_left_out(self, shown):
        predict("11.batch", "?", low=1, high=9, guess=3)
        assert belief_changes({"11.batch": ("batch", "x")})[0].stance is None


class TestTable:
    def test_it_lists_all_and_what_was_refuted(self):
        open_store().put("beliefs", next(iter(catalogue())), {"refuted": True, "evidence": "7"})
        report = misconceptions()
        (table,) = report.tables
        assert table.title.startswith(f"Misconceptions: 1 of {len(catalogue())} refuted")
        assert [row[2] for row in table.rows].count("refuted") == 1
        assert len(table.rows) == len(catalogue())
        waiting = list(catalogue())[1]
        assert f'misconception("{waiting}").refute()' in report.text

    def test_the_page_is_a_table_with_a_name_and_headings(self):
        page = misconceptions()._repr_html_()
        assert 'aria-label="Misconceptions of the course"' in page
        assert page.count('<th scope="col"') == 3

    def test_where_all_are_refuted_nothing_is_left_to_do(self):
        for key in catalogue():
            open_store().put("beliefs", key, {"refuted": True, "evidence": "7"})
        assert misconceptions().sentences == ()

    def test_an_entry_of_a_belief_that_is_gone_does_not_count(self):
        open_store().put("beliefs", "99.gone", {"refuted": True, "evidence": "7"})
        assert misconceptions().tables[0].title.startswith("Misconceptions: 0 of")
