"""The schedules and shapes of the bundled pair."""

import dataclasses

import pytest

from llmserve_lab.models.recipe import DRAFT, TARGET, Recipe

SMALL = Recipe("small", 32, 2, 4, 2, 8, 48, learning_rate=1.0)


def test_the_rate_rises_stays_and_falls_to_zero():
    assert SMALL.rate_at(0) == 0
    assert SMALL.rate_at(0.01) == pytest.approx(0.5)
    assert SMALL.rate_at(0.02) == SMALL.rate_at(0.3) == SMALL.rate_at(0.4) == 1
    assert SMALL.rate_at(0.7) == pytest.approx(0.5)
    assert SMALL.rate_at(1) == 0
    assert SMALL.rate_at(1.01) == 0


def test_sequences_get_longer():
    assert [SMALL.length_at(share) for share in (0, 0.849, 0.85, 1, 1.01)] == [
        512, 512, 1024, 1024, 1024,
    ]  # fmt: skip
    one = dataclasses.replace(SMALL, lengths=((0.0, 8),))
    assert one.length_at(0.5) == 8


@pytest.mark.parametrize("recipe", [TARGET, DRAFT], ids=lambda recipe: recipe.name)
def test_the_pair_has_grouped_heads_and_ends_on_its_full_context(recipe):
    config = recipe.config()
    assert config.num_attention_heads % config.num_key_value_heads == 0
    assert config.num_key_value_heads < config.num_attention_heads
    assert config.vocab_size == 4096
    assert config.max_position_embeddings == recipe.length_at(1.0) == 1024
    assert config.tie_word_embeddings
