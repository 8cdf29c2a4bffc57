"""Headers and footers: complete data, kept ticks, links only to files that exist."""

from __future__ import annotations

from importlib import import_module

import pytest

from llmserve_lab.course import footer, header
from llmserve_lab.course.progress import open_store
from llmserve_lab.widgets import cards

module = import_module("llmserve_lab.course.chapter")
questions = import_module("llmserve_lab.course.quiz").questions
WRITTEN = [name for name, chapter in module.chapters().items() if "outcomes" in chapter]


def test_chapters_are_numbered_in_order():
    numbers = [int(module.number(name)) for name in module.chapters()]
    assert numbers == sorted(set(numbers))
    assert {*range(13), *range(16, 20)} <= set(numbers)


@pytest.mark.parametrize("name", list(module.chapters()))
def test_each_chapter_has_what_every_header_shows(name):
    chapter = module.chapters()[name]
    assert chapter["title"]
    assert chapter["part"]
    assert 10 <= chapter["minutes"] <= 45


@pytest.mark.parametrize("name", WRITTEN)
def test_a_written_chapter_is_complete(name):
    chapter = module.chapters()[name]
    assert len(chapter["outcomes"]) == 3
    assert chapter["checklist"]
    keys = [item["key"] for item in chapter["checklist"]]
    assert len(set(keys)) == len(keys)
    recall = chapter["recall"]
    assert len(recall) == (0 if name == WRITTEN[0] else 3)
    assert all(key in questions() for key in recall)
    assert all(int(key[:2]) < int(module.number(name)) for key in recall)  # from earlier chapters


@pytest.mark.parametrize("name", WRITTEN[2:])
def test_recall_is_spread_over_earlier_chapters_and_reaches_the_later_ones(name):
    sources = {int(key[:2]) for key in module.chapters()[name]["recall"]}
    assert len(sources) >= 2
    assert max(sources) >= min(int(module.number(name)) // 2, 6)


def test_header_shows_title_time_and_outcomes(shown):
    header("01")
    page = shown[0]["text/html"]
    chapter = module.chapters()["01_problem_setting"]
    assert chapter["title"] in page
    assert f"{chapter['minutes']} minutes" in page
    assert all(line in page for line in chapter["outcomes"])
    assert len(shown) == 2  # and one card with the recall questions
    assert open_store().get("chapters", "01_problem_setting")["opened"]


def test_the_first_chapter_recalls_nothing(shown):
    header("00_start_here")
    assert len(shown) == 1


def test_footer_keeps_ticks(shown, monkeypatch):
    made = []
    original = cards.ChecklistCard
    monkeypatch.setattr(
        cards, "ChecklistCard", lambda **kw: made.append(original(**kw)) or made[-1]
    )
    header("00")
    footer("00")
    made[0].checked = ["00.step"]
    kept = open_store().get("chapters", "00_start_here")
    assert kept == {"opened": True, "checked": ["00.step"]}
    footer("00")
    assert made[1].checked == ["00.step"]


def test_footer_links_only_to_files_that_exist(shown, tmp_path, monkeypatch):
    notebooks = tmp_path / "notebooks"
    notebooks.mkdir()
    monkeypatch.chdir(notebooks)
    footer("01")
    assert len(shown) == 1
    assert "href" not in shown[0]["text/html"]
    (tmp_path / "exercises").mkdir()
    (tmp_path / "exercises" / "01_problem_setting.ipynb").write_text("{}")
    footer("01")
    links = shown[-1]["text/html"]
    assert 'href="../exercises/01_problem_setting.ipynb"' in links
    assert "02_latency" not in links
    (notebooks / "02_latency.ipynb").write_text("{}")
    footer("01")
    assert 'href="02_latency.ipynb"' in shown[-1]["text/html"]


def test_footer_of_another_edition_leads_to_its_own_exercises(shown, tmp_path, monkeypatch):
    for folder in ("notebooks/ko", "exercises/ko"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "01_problem_setting.ipynb").write_text("{}")
    monkeypatch.chdir(tmp_path / "notebooks/ko")
    footer("01")
    assert 'href="../../exercises/ko/01_problem_setting.ipynb"' in shown[-1]["text/html"]


def test_the_last_chapter_has_a_footer_too(shown):
    footer(list(module.chapters())[-1])


def test_an_unknown_chapter_is_refused():
    with pytest.raises(ValueError, match="01_problem_setting"):
        header("99")
