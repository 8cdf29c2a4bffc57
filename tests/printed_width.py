"""A plugin for a run of nbval: a cell that prints a line too wide for a narrow page fails."""

import pytest

WIDEST = 76  # characters; a page of 800 pixels holds 78, and a slow machine prints longer times


def too_wide(outputs):
    """The lines of a cell's printed text and plain results that a narrow page would break."""
    return [
        line for text in map(_plain, outputs) for line in text.splitlines() if len(line) > WIDEST
    ]


def _plain(output):
    if output.get("name") == "stdout":
        return output["text"]
    data = output.get("data", {})
    return "" if set(data) - {"text/plain"} else data.get("text/plain", "")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    yield
    lines = too_wide(item.test_outputs or ())
    assert not lines, f"printed lines of more than {WIDEST} characters: {lines}"
