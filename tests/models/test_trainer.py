"""Training learns, keeps a whole checkpoint and goes on from it. No test waits for a clock."""

import dataclasses
import itertools

import numpy
import pytest
import torch

from llmserve_lab.models import trainer as module
from llmserve_lab.models.recipe import Recipe
from llmserve_lab.models.trainer import Trainer

RECIPE = Recipe(
    "small", 32, 2, 4, 2, 8, 48, learning_rate=2e-2, context=64, batch_tokens=128,
    lengths=((0.0, 16),),
)  # fmt: skip
GROWING = dataclasses.replace(RECIPE, lengths=((0.0, 16), (0.5, 32)))
STEPS = 30


@pytest.fixture(autouse=True)
def own_memory(monkeypatch):
    """Leave the allocator of the test process as it is."""
    monkeypatch.setattr(module, "keep_freed_memory", lambda: None)


@pytest.fixture
def clock(monkeypatch):
    """Every training step takes one second."""
    ticks = itertools.count()
    monkeypatch.setattr(module.time, "perf_counter", lambda: float(next(ticks)))


@pytest.fixture
def tokens():
    """A phrase of 8 tokens over and over: easily learned."""
    phrase = numpy.random.default_rng(0).integers(0, 4096, 8)
    return numpy.tile(phrase, 200).astype(numpy.int64)


def loss(trainer):
    torch.manual_seed(0)
    with torch.no_grad():
        return trainer._plain_loss(torch.from_numpy(trainer.tokens[:65])[None]).item()


def weights(trainer):
    return {name: value.clone() for name, value in trainer.model.state_dict().items()}


def same(first, second):
    return all(torch.equal(first[name], second[name]) for name in first)


def test_the_loss_falls(clock, tokens, tmp_path):
    trainer = Trainer(RECIPE, tokens)
    before = loss(trainer)
    trainer.run(seconds=STEPS, checkpoint=tmp_path / "a" / "small.pt")
    assert loss(trainer) < before / 4
    assert trainer.step == STEPS
    assert trainer.tokens_seen == STEPS * 8 * 17
    assert not trainer.model.training
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["small.pt"]


def test_sequences_grow_in_mid_epoch(clock, tokens, tmp_path):
    trainer = Trainer(GROWING, tokens)
    trainer.run(seconds=STEPS, checkpoint=tmp_path / "small.pt")
    assert trainer.tokens_seen == STEPS // 2 * 8 * 17 + STEPS // 2 * 4 * 33


def test_a_corpus_without_two_windows_is_refused(tokens):
    with pytest.raises(ValueError, match="more than 64 are needed"):
        Trainer(GROWING, tokens[:64])


def test_it_goes_on_from_where_it_was(clock, tokens, tmp_path):
    path = tmp_path / "small.pt"
    first = Trainer(RECIPE, tokens)
    first.run(seconds=10, checkpoint=path)
    second = Trainer(RECIPE, tokens)
    assert not same(weights(first), weights(second))
    second.resume(path)
    assert same(weights(first), weights(second))
    assert (second.step, second.elapsed, second.tokens_seen) == (10, 10.0, first.tokens_seen)
    states = [[o.state_dict()["state"] for o in t.optimizers] for t in (first, second)]
    torch.testing.assert_close(*states)
    second.run(seconds=12, checkpoint=path)
    assert second.step == 12
    third = Trainer(RECIPE, tokens)
    third.resume(path)
    third.run(seconds=12, checkpoint=path)  # nothing is left to do
    assert third.step == 12
    assert same(weights(second), weights(third))


def test_an_interrupted_write_leaves_the_old_checkpoint(clock, tokens, tmp_path, monkeypatch):
    path = tmp_path / "small.pt"
    trainer = Trainer(RECIPE, tokens)
    trainer.run(seconds=2, checkpoint=path)
    whole = path.read_bytes()

    def cut(state, file):
        file.write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(torch, "save", cut)
    with pytest.raises(KeyboardInterrupt):
        trainer.checkpoint(path)
    assert path.read_bytes() == whole


def test_checkpoints_come_while_it_runs(clock, tokens, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "CHECKPOINT_SECONDS", 3)
    saved = []
    trainer = Trainer(RECIPE, tokens)
    monkeypatch.setattr(trainer, "checkpoint", lambda path: saved.append(trainer.step))
    trainer.run(seconds=10, checkpoint=tmp_path / "small.pt")
    assert saved == [4, 8, 10]


def test_every_window_is_used_once_per_epoch(tokens):
    trainer = Trainer(RECIPE, numpy.arange(16 * 9 + 1, dtype=numpy.int64))
    batch = trainer._batch(16)
    assert batch.shape == (8, 17)
    assert len({int(row[0]) for row in batch}) == 8
    assert all((row[1:] == row[:-1] + 1).all() for row in batch)
    assert len({int(row[0]) % 16 for row in batch}) == 1


def test_a_student_follows_its_teacher(clock, tokens, tmp_path):
    teacher = Trainer(RECIPE, tokens)
    teacher.run(seconds=STEPS, checkpoint=tmp_path / "teacher.pt")
    frozen = weights(teacher)
    student = Trainer(RECIPE, tokens, teacher=teacher.model)
    before = loss(student)
    student.run(seconds=STEPS, checkpoint=tmp_path / "student.pt")
    assert loss(student) < before
    assert same(weights(teacher), frozen)


def test_the_saved_model_is_what_load_reads(clock, tokens, tmp_path, byte_tokenizer):
    from llmserve_lab import load

    trainer = Trainer(RECIPE, tokens)
    trainer.run(seconds=2, checkpoint=tmp_path / "small.pt")
    trainer.save(tmp_path / "saved", byte_tokenizer)
    loaded = load(tmp_path / "saved", dtype="float32", device="cpu")
    for name, value in trainer.model.state_dict().items():
        assert torch.equal(loaded.model.state_dict()[name], value.bfloat16().float()), name
    assert loaded.tokenizer("x = 1")["input_ids"] == byte_tokenizer("x = 1")["input_ids"]
    assert {p.dtype for p in trainer.model.parameters()} == {torch.float32}
