"""A progress file of its own for each test here, and what the test displays."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    monkeypatch.setenv("LLMSERVE_LAB_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def shown(monkeypatch) -> list[dict]:
    """The MIME bundles that were displayed."""
    bundles: list[dict] = []
    monkeypatch.setattr(
        "IPython.display.display", lambda data, metadata=None, raw=True: bundles.append(data)
    )
    return bundles
