import re

import pytest

from llmserve_lab.course import misconception
from llmserve_lab.course.misconceptions import Misconception, catalogue
from llmserve_lab.course.progress import open_store

ALL = list(catalogue().values())


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    monkeypatch.setenv("LLMSERVE_LAB_HOME", str(tmp_path))


@pytest.mark.parametrize("item", ALL, ids=lambda item: item.key)
class TestEveryMisconception:
    def test_its_experiment_refutes_it_in_one_note_with_numbers(self, item):
        note = misconception(item.key).refute()
        assert len(re.findall(r"\d+", repr(note))) >= 2
        entry = open_store().get("beliefs", item.key)
        assert entry == {"refuted": True, "evidence": note.text}

    def test_it_is_named_called_wrong_and_explained(self, item):
        assert re.fullmatch(r"\d\d\.[a-z0-9-]+", item.key)
        assert item.wrong.startswith("This is wrong")
        for text in (item.belief, item.wrong, item.mechanism, f'"{item.key}").refute()'):
            assert text in repr(item)


def test_every_chapter_so_far_has_one():
    assert {key[:2] for key in catalogue()} >= {"00", "01"}


def test_a_run_that_does_not_refute_it_fails_and_records_nothing():
    def experiment():
        assert 1 + 1 == 3, "1 + 1 is 2"

    item = Misconception("99.x", "belief", "This is wrong.", "why", experiment)
    with pytest.raises(AssertionError, match="is 2"):
        item.refute()
    assert open_store().items("beliefs") == {}


def test_the_page_is_escaped():
    item = Misconception("99.x", "a < b & c", "This is wrong.", "why", str)
    assert "a &lt; b &amp; c" in item._repr_html_()


def test_an_unknown_key_names_those_there_are():
    with pytest.raises(ValueError, match=r"no misconception '01\.x'; there are 00\."):
        misconception("01.x")
