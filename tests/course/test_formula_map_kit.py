"""What chapter 10 and its exercise watch and count with: forward calls, padding, the map."""

from __future__ import annotations

import math

import pytest
import torch

from llmserve_lab import LLM, SamplingParams, load
from llmserve_lab.course.formula_map import FormulaMap
from llmserve_lab.course.forward_calls import cache_bytes, engine_calls, forward_calls
from llmserve_lab.course.padded import left_padded, padded_greedy
from llmserve_lab.course.past_model import PastModel
from llmserve_lab.engine.core import Engine

PROMPTS = [list(range(100, 112)), list(range(200, 205))]
TOKENS = 4
PARAMS = SamplingParams(temperature=0, max_tokens=TOKENS, ignore_eos=True)
SETTINGS = {"max_new_tokens": TOKENS, "do_sample": False, "pad_token_id": 0}


@pytest.fixture(scope="module")
def model():
    return load("lab-target", device="cpu", dtype="float32")


@pytest.fixture(scope="module")
def expected(model):
    outputs = LLM(model).generate([{"prompt_token_ids": ids} for ids in PROMPTS], PARAMS)
    return [list(output.outputs[0].token_ids) for output in outputs]


class TestForwardCalls:
    def test_both_sides_make_a_prefill_and_a_call_for_each_further_token(self, model, expected):
        ids = torch.tensor(PROMPTS[:1])
        with forward_calls(model.model) as theirs:
            model.model.generate(ids, attention_mask=torch.ones_like(ids), **SETTINGS)
        llm = LLM(model, block_size=4)
        with engine_calls(llm) as ours:
            llm.generate({"prompt_token_ids": PROMPTS[0]}, PARAMS)
        assert [call.shape for call in theirs] == [(1, 12), (1, 1), (1, 1), (1, 1)]
        assert [call.shape for call in ours] == [(12,), (1,), (1,), (1,)]
        for calls in (theirs, ours):
            assert [(call.cached, call.held) for call in calls] == [
                (0, 12), (12, 13), (13, 14), (14, 15),
            ]  # fmt: skip
            assert [call.positions for call in calls] == [[[*range(12)]], [[12]], [[13]], [[14]]]
            assert [call.rows for call in calls] == [1] * 4
        one = theirs[0].kv_bytes // 12
        assert [call.kv_bytes for call in theirs] == [one * call.held for call in theirs]
        assert [call.kv_bytes for call in ours] == [
            4 * one * math.ceil(call.held / 4) for call in ours
        ]

    def test_nothing_is_left_behind(self, model):
        llm = LLM(model)
        forward = llm._engine.runner.forward
        with pytest.raises(KeyError), forward_calls(model.model) as calls, engine_calls(llm):
            raise KeyError
        assert llm._engine.runner.forward == forward
        model.model(torch.tensor(PROMPTS[:1]))
        assert not calls

    def test_no_cache_holds_no_bytes(self):
        assert cache_bytes(None) == 0


class TestPadded:
    def test_padding_stands_on_the_left_and_is_not_counted(self):
        batch = {name: tensor.tolist() for name, tensor in left_padded([[7], [1, 2, 3]], 9).items()}
        assert batch["input_ids"] == [[9, 9, 7], [1, 2, 3]]
        assert batch["attention_mask"] == [[0, 0, 1], [1, 1, 1]]
        assert batch["position_ids"] == [[0, 0, 0], [0, 1, 2]]

    def test_a_padded_batch_writes_what_the_engine_writes(self, model, expected):
        batch = left_padded(PROMPTS, 0)
        starts = torch.tensor([[len(prompt)] for prompt in PROMPTS])
        assert padded_greedy(model.model, batch, TOKENS, starts) == expected


class TestPastModel:
    def test_it_counts_what_it_is_given_and_stops_at_what_is_allowed(self, model):
        past = PastModel(model.model, allowed=6)
        output = past(torch.tensor([PROMPTS[1]]))
        assert past.computed == 5 and output.past_key_values.get_seq_length() == 5
        past(torch.tensor([[1]]), output.past_key_values)
        with pytest.raises(RuntimeError, match="6 token ids in all"):
            past(torch.tensor([[1]]), output.past_key_values)

    def test_a_flat_list_is_refused(self, model):
        with pytest.raises(TypeError, match=r"\(rows, tokens\)"):
            PastModel(model.model)(torch.tensor([1, 2]))


class TestFormulaMap:
    def test_a_row_names_the_place_in_the_engine_and_is_replaced_when_run_again(self):
        table = FormulaMap()
        for seen in ("once", "twice"):
            table.add("model.generate()", "T = a < b", Engine.step, seen)
        assert len(table.rows) == 1
        assert table.rows[0].where == "engine/core.py: Engine.step"
        assert "twice" in repr(table) and "once" not in repr(table)
        assert "a &lt; b" in table._repr_html_()
        assert "engine/<wbr>core.<wbr>py: Engine.<wbr>step</code>" in table._repr_html_()

    def test_what_is_not_of_this_package_is_refused(self):
        with pytest.raises(ValueError, match="not of this package"):
            FormulaMap().add("code", "formula", pytest.raises, "seen")
