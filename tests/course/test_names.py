"""`from llmserve_lab.course import ...`: light, and a name is never the module of that name."""

import subprocess
import sys

import pytest

import llmserve_lab.course as course

HEAVY = {"torch", "transformers", "plotly", "ipywidgets", "anywidget"}


def run(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_all_names_are_there_and_load_nothing_heavy():
    names = ", ".join(course.__all__)
    code = f"import sys; from llmserve_lab.course import {names}; print(*sys.modules)"
    assert not HEAVY & {name.split(".")[0] for name in run(code)}


@pytest.mark.parametrize("name", ["predict", "progress", "quiz", "because"])
def test_a_name_is_the_function_even_after_its_module_was_imported(name):
    code = (
        f"import llmserve_lab.course.{name}, llmserve_lab.course.{name} as again\n"
        f"from llmserve_lab.course import {name}; import llmserve_lab.course as course\n"
        f"print(type({name}).__name__, course.{name} is {name})"
    )
    assert run(code) == ["function", "True"]


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'predikt'"):
        _ = course.predikt
    assert set(course.__all__) <= set(dir(course))
