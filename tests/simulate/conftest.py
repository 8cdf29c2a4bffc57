"""Machines whose steps take round times."""

import pytest

from llmserve_lab.simulate import Simulator

PER_STEP, PER_TOKEN, PER_COPIED = 1.0, 0.125, 0.25  # seconds; sums of both are exact in binary


class RoundMachine:
    """A step takes one second, and an eighth per token."""

    def __init__(self, num_blocks=64):
        self._num_blocks = num_blocks
        self.loads = []

    def seconds(self, load):
        self.loads.append(load)
        return PER_STEP + PER_TOKEN * load.tokens

    def copy_seconds(self, num_tokens):
        return PER_COPIED * num_tokens

    def num_blocks(self, block_size):
        return self._num_blocks


def assert_as_new(simulator):
    """No request and no block is left."""
    simulator.pool.check_integrity()
    assert simulator.pool.num_used == 0
    engine = simulator.engine
    assert not any((engine.requests, engine.detokenizers, engine._to_abort))
    assert not simulator.scheduler.waiting
    assert not simulator.scheduler.running


@pytest.fixture
def machine():
    return RoundMachine()


@pytest.fixture
def make_simulator():
    """Simulators with blocks of 4; afterwards every one must hold nothing any more."""
    made = []

    def make(machine=None, **settings):
        simulator = Simulator(machine or RoundMachine(), **({"block_size": 4} | settings))
        made.append(simulator)
        return simulator

    yield make
    for simulator in made:
        assert_as_new(simulator)
