"""For all tests: whoever runs them keeps their own progress file as it is."""

import pytest


@pytest.fixture(scope="session", autouse=True)
def course_home(tmp_path_factory):
    """A home of the course for this session; a test may set one of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LLMSERVE_LAB_HOME", str(tmp_path_factory.mktemp("home")))
        yield
