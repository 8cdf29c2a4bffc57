"""The palette holds on both themes and for colour-blind readers."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from llmserve_lab.plots import theme

# Machado, Oliveira & Fernandes (2009), severity 1.0, linear RGB.
BLINDNESS = {
    "protan": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deutan": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
}
TOGETHER = [theme.QUEUE, theme.PREFILL, theme.DECODE]  # one picture shows all of these


def linear(colour: str) -> np.ndarray:
    rgb = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    weights = np.array([0.2126, 0.7152, 0.0722])
    low, high = sorted(float(linear(c) @ weights) for c in (one, other))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("paper", ["#FFFFFF", "#111111"])
@pytest.mark.parametrize("name", sorted(theme.MARKS))
def test_each_meaning_stands_out_on_both_papers(name, paper):
    assert contrast(theme.MARKS[name].colour, paper) >= 3


@pytest.mark.parametrize("paper", ["#FFFFFF", "#111111"])
@pytest.mark.parametrize("colour", [theme.NEUTRAL, *theme.OWNERS])
def test_text_and_owners_stand_out_on_both_papers(colour, paper):
    assert contrast(colour, paper) >= 3


@pytest.mark.parametrize("kind", sorted(BLINDNESS))
def test_colours_of_one_picture_differ_for_colour_blind_readers(kind):
    seen = {m.label: np.array(BLINDNESS[kind]) @ linear(m.colour) for m in TOGETHER}
    for one, other in itertools.combinations(seen, 2):
        assert np.linalg.norm(seen[one] - seen[other]) > 0.1, (one, other)


def test_meanings_drawn_as_areas_differ_by_pattern_too():
    areas = [
        theme.MARKS[n]
        for n in ("queue", "prefill", "decode", "mixed", "waste", "shared", "rejected")
    ]
    assert len({mark.pattern for mark in areas}) == len(areas)
