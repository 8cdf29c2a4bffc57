"""The asynchronous stand-in: launching never waits, synchronizing always does. No test sleeps."""

from __future__ import annotations

import threading

import pytest

from llmserve_lab.course.async_device import AsyncDevice
from llmserve_lab.course.checks.fake_device import LAUNCH_SECONDS, FakeDevice, FakeKernel

SECONDS = 20  # a stuck test ends here; nothing is measured


def test_launch_returns_before_the_work_has_run():
    device, gate = AsyncDevice(), threading.Event()
    for _ in range(3):
        device.launch(lambda: gate.wait(SECONDS))
    assert (device.num_launched, device.num_done) == (3, 0)
    gate.set()
    device.synchronize()
    assert device.num_done == 3


def test_work_runs_in_order_on_another_thread():
    device, seen = AsyncDevice(), []
    for i in range(50):
        device.launch(lambda i=i: seen.append((i, threading.get_ident())))
    device.synchronize()
    assert [i for i, _ in seen] == list(range(50))
    assert {thread for _, thread in seen}.isdisjoint({threading.get_ident()})


def test_kernels_never_overlap_and_follow_their_launch():
    device = AsyncDevice()
    for _ in range(20):
        device.launch(lambda: sum(range(100)))
    device.synchronize()
    for before, after in zip(device.kernels, device.kernels[1:], strict=False):
        assert before.launched <= before.started <= before.ended <= after.started


def test_what_work_raises_is_told_once_at_the_next_synchronize():
    device, done = AsyncDevice(), []
    device.launch(lambda: 1 / 0)
    device.launch(lambda: done.append(1))
    with pytest.raises(ZeroDivisionError):
        device.synchronize()
    assert done == [1]
    device.synchronize()


def test_synchronize_on_an_idle_device_returns():
    device = AsyncDevice()
    device.synchronize()
    assert (device.num_synchronized, device.num_done) == (1, 0)


class TestFakeDevice:
    def test_launching_takes_the_hosts_time_only(self):
        device, kernel = FakeDevice(), FakeKernel(1.0)
        device.launch(kernel)
        device.launch(kernel)
        assert device.clock() == 2 * LAUNCH_SECONDS
        device.synchronize()
        assert device.clock() == 2.0 + LAUNCH_SECONDS

    def test_the_host_waits_for_a_compiler_once(self):
        device, kernel = FakeDevice(), FakeKernel(0.5, first=4.0)
        device.launch(kernel)
        assert device.clock() == 4.0 + LAUNCH_SECONDS
        device.launch(kernel)
        assert device.clock() == 4.0 + 2 * LAUNCH_SECONDS

    def test_work_of_others_comes_first(self):
        device = FakeDevice(busy=3.0)
        device.launch(FakeKernel(1.0))
        device.synchronize()
        assert device.clock() == 4.0

    def test_a_kernel_is_not_called(self):
        with pytest.raises(TypeError, match=r"device\.launch"):
            FakeKernel(1.0)()
