"""Clocks that wait: on nothing, by sleeping, by being busy."""

import pytest

from llmserve_lab.simulate.clock import CpuClock, VirtualClock, WallClock


def test_a_virtual_clock_moves_only_when_told_to():
    clock = VirtualClock()
    clock.advance(1.5)
    assert clock() == 1.5
    clock.wait_until(4.0)
    clock.wait_until(2.0)  # past already
    assert clock() == 4.0
    for nonsense in (-1.0, float("nan")):
        with pytest.raises(ValueError, match="cannot go on"):
            clock.advance(nonsense)
    assert clock() == 4.0


@pytest.mark.parametrize("make", [WallClock, CpuClock])
def test_a_real_clock_waits_no_shorter_than_asked(make):
    clock = make()
    until = clock() + 0.01
    clock.wait_until(until)
    assert clock() >= until - 1e-6
    clock.wait_until(until - 5.0)  # past already
