"""What is trained on, what never is, and what ships."""

import dataclasses
import random

import pytest

from llmserve_lab.models import corpus
from llmserve_lab.models.corpus import SourceFile


@pytest.fixture(scope="module")
def library():
    return corpus.standard_library()


def test_the_split_is_by_file_and_whole(library):
    training, held_out = corpus.split(library)
    names = [{file.name for file in part} for part in (training, held_out)]
    assert not names[0] & names[1]
    assert len(training) + len(held_out) == len(library)
    assert len(held_out) >= 30
    assert len(training) > 5 * len(held_out)


def test_the_split_depends_on_the_name_alone(library):
    for file in library[:50]:
        other = dataclasses.replace(file, text=file.text + "# changed\n")
        assert other.held_out == file.held_out


def test_files_that_teach_nothing_are_left_out(library):
    names = [file.name for file in library]
    assert names == sorted(names)
    assert len(set(names)) == len(names)
    for part in ("test", "tests", "idlelib", "site-packages", "__pycache__", "encodings"):
        assert not any(part in name.split("/")[:-1] for name in names)
    assert "html/entities.py" not in names
    assert {"argparse.py", "json/decoder.py"} <= set(names)
    assert all(file.num_bytes >= corpus.SMALLEST_FILE // 2 for file in library)


def test_no_held_out_text_hides_in_the_training_part(library):
    """A copy of a held-out file under another name would be seen after all."""
    training, held_out = corpus.split(library)
    texts = {file.text for file in training}
    assert not any(file.text in texts for file in held_out)


def test_the_sample_is_held_out():
    sample = corpus.held_out_sample()
    assert len(sample) >= 20
    assert all(file.held_out for file in sample)
    low, high = corpus.SAMPLE_BYTES
    assert all(low <= file.num_bytes <= high for file in sample)
    assert not any(corpus.SAMPLE_LICENCE in file.name for file in sample)
    assert (corpus.SAMPLE_FOLDER / f"{corpus.SAMPLE_LICENCE}.txt").is_file()


def test_the_sample_is_written_as_it_is_read(tmp_path, monkeypatch):
    files = [
        SourceFile("email/header.py", "é" * 2500),
        SourceFile("small.py", "x"),
        SourceFile("large.py", "x" * 40_000),
    ]
    monkeypatch.setattr(corpus, "SAMPLE_FOLDER", tmp_path / "sample")
    corpus.write_sample(files)
    assert corpus.held_out_sample() == files[:1]


def test_the_digest_changes_with_any_content():
    files = [SourceFile("a.py", "one"), SourceFile("b.py", "two")]
    others = [
        [SourceFile("a.py", "one"), SourceFile("b.py", "two ")],
        [SourceFile("a.py", "one"), SourceFile("c.py", "two")],
        [SourceFile("a.py", "onet"), SourceFile("b.py", "wo")],
        files[:1],
        [],
    ]
    digests = {corpus.digest(chosen) for chosen in (files, *others)}
    assert len(digests) == 6
    assert corpus.digest(list(files)) == corpus.digest(files)


def test_undecodable_and_short_files_are_passed_over(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus.sysconfig, "get_paths", lambda: {"stdlib": str(tmp_path)})
    (tmp_path / "latin.py").write_bytes(b"# \xe9\n" * 200)
    (tmp_path / "short.py").write_text("x = 1\n")
    (tmp_path / "test").mkdir()
    (tmp_path / "test" / "long.py").write_text("x = 1\n" * 200)
    (tmp_path / "good.py").write_text("x = 1\n" * 200)
    assert [file.name for file in corpus.standard_library()] == ["good.py"]


def test_one_in_twelve_is_held_out():
    source = random.Random(0)
    names = [f"{source.random()}.py" for _ in range(2400)]
    share = sum(SourceFile(name, "").held_out for name in names) / len(names)
    assert abs(share - 1 / corpus.HELD_OUT_ONE_IN) < 0.02
