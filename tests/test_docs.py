"""The documents say what is there: links, chapters, commands, examples, limits and colours."""

import json
import re
import shlex
import subprocess
import sys
import textwrap
from collections import defaultdict
from importlib.util import find_spec
from pathlib import Path

import pytest

import lab
from llmserve_lab.course import edition, lint
from llmserve_lab.course.chapter import chapters, number
from llmserve_lab.course.checks.grader import SEEDS, CheckFailed
from llmserve_lab.course.settings import read_settings
from llmserve_lab.course.source import read_source
from llmserve_lab.models.load import bundled_path
from llmserve_lab.plots.theme import MARKS

ROOT = Path(__file__).resolve().parents[1]
NAMES = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "course/README.md"]
TEXTS = {name: (ROOT / name).read_text(encoding="utf-8") for name in NAMES}
SETTINGS = read_settings(ROOT)

FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
PICTURE = re.compile(r"^!\[([^\]]+)\]\(([^)]+)\)$", re.MULTILINE)
MARK_ROW = re.compile(r"^\| ([^|`]+) \| \w+ `(#\w{6})` \| ", re.MULTILINE)
INLINE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
COMMAND = re.compile(r"python3? (lab\.py|-m)\b.*")


def blocks(name, language):
    """The text of each code block of a language, without its indentation."""
    found = FENCE.findall(TEXTS[name])
    return [textwrap.dedent(text) for _, kind, text in found if kind == language]


def commands(name):
    """Every command that starts Python, in code blocks and in running text."""
    without_blocks = FENCE.sub("", TEXTS[name])
    shell = [line for text in blocks(name, "sh") for line in text.splitlines()]
    found = filter(None, map(COMMAND.fullmatch, [*shell, *INLINE.findall(without_blocks)]))
    return [shlex.split(match.group(), comments=True)[1:] for match in found]


def anchors(path):
    """The names of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in headings}


def all_blocks():
    """Every code block that is Python, with a name for the test."""
    return [
        pytest.param(name, text, id=f"{name}:{position}")
        for name in NAMES
        for position, text in enumerate(blocks(name, "python"), 1)
    ]


def is_source(text):
    """Whether a block shows a course source (py:percent) and no program."""
    return text.startswith("# %%")


def cells_of(text, folder):
    path = folder / "02_example.py"
    path.write_text(text, encoding="utf-8")
    return read_source(path)


@pytest.mark.parametrize("name", NAMES)
def test_links_lead_to_files(name):
    targets = [target for target in LINK.findall(TEXTS[name]) if "://" not in target]
    broken = []
    for target in targets:
        file, _, anchor = target.partition("#")
        path = ((ROOT / name).parent / file if file else ROOT / name).resolve()
        found = path.exists() and path.is_relative_to(ROOT)
        if not found or (anchor and anchor not in anchors(path)):
            broken.append(target)
    assert broken == []
    assert targets or name == "CHANGELOG.md"


def test_the_readme_shows_the_course_and_says_what_is_on_the_picture():
    ((words, picture),) = PICTURE.findall(TEXTS["README.md"])
    assert len(words.split()) > 10
    assert (ROOT / picture).read_bytes().startswith(b"\x89PNG")


MAP = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in TEXTS["README.md"].splitlines()
    if re.match(r"\| \[?\d\d ", line)
]


class TestMap:
    """The table of chapters in the README against the course's own list and files."""

    def row(self, key):
        title = f"{number(key)} {chapters()[key]['title']}"
        (row,) = [row for row in MAP if re.sub(r"\]\(.*", "", row[0]).strip("[") == title]
        return row

    def test_it_has_the_chapters_of_the_course_and_no_other(self):
        assert [row[0].strip("[")[:2] for row in MAP] == list(map(number, chapters()))

    @pytest.mark.parametrize("key", list(chapters()))
    def test_it_says_what_can_be_opened(self, key):
        chapter, _, exercise, status = self.row(key)
        notebook = f"notebooks/{key}.ipynb"
        if (ROOT / notebook).exists():
            assert f"]({notebook})" in chapter
            assert status == f"available, [Colab]({SETTINGS.colab_url(Path(notebook))})"
        else:
            assert not LINK.search(chapter)
            assert status == "planned"
        target = f"exercises/{key}.ipynb"
        exists = (ROOT / target).exists()
        assert LINK.findall(exercise) == ([target] if exists else [])
        title = chapters()[key]["exercise"] or "none"
        assert exercise == (f"[{title}]({target})" if exists else title)

    @pytest.mark.parametrize("key", [key for key in chapters() if number(key) != "00"])
    def test_it_names_a_section_of_a_document(self, key):
        assert re.match(r"\([12]\) \w", self.row(key)[1])


def test_links_to_colab_are_those_of_the_notebooks():
    links = re.findall(r"https://colab\.research\.google\.com/github/[^)\s]+", TEXTS["README.md"])
    known = {SETTINGS.colab_url(path.relative_to(ROOT)) for path in ROOT.glob("*/[0-9]*.ipynb")}
    assert links and set(links) <= known


@pytest.mark.parametrize("name", NAMES)
def test_commands_exist(name):
    modules = defaultdict(set)
    for what, *arguments in commands(name):
        if what == "lab.py":
            lab.parse(arguments)  # raises for an action that there is not
        else:
            module, *options = arguments
            assert find_spec(module), module
            modules[module] |= {option for option in options if option.startswith("--")}
    for module in (module for module, options in modules.items() if options):
        shown = subprocess.run(
            [sys.executable, "-m", module, "--help"], capture_output=True, text=True, cwd=ROOT
        )
        assert shown.returncode == 0, shown.stderr
        assert modules[module] <= set(re.findall(r"--[a-z]+", shown.stdout))


def test_the_two_commands_come_first():
    assert commands("README.md")[:2] == [["lab.py"], ["lab.py", "test"]]


@pytest.mark.parametrize("name, text", all_blocks())
def test_a_shown_source_can_be_built_and_a_program_compiles(name, text, tmp_path):
    if not is_source(text):
        compile(text, name, "exec")
        return
    cells = cells_of(text, tmp_path)
    langs = {"en", *(cell.lang for cell in cells if cell.lang)}
    choose = edition.solved if any("solution" in cell.tags for cell in cells) else edition.chapter
    for lang in langs:
        assert not lint.faults(choose(edition.in_language(cells, lang, "en", name), name))


@pytest.mark.parametrize("name", [name for name in NAMES if blocks(name, "python")])
def test_programs_run(name, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("LLMSERVE_LAB_HOME", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    programs = [text for text in blocks(name, "python") if not is_source(text)]
    weights = bundled_path("lab-target") / "model.safetensors"
    if any("LLM(" in text for text in programs) and not weights.exists():
        pytest.skip("the bundled model has not been trained yet")
    namespace = {"__name__": "example"}
    for text in programs:
        exec(compile(text, name, "exec"), namespace)
        if "print(" in text:
            assert capsys.readouterr().out.strip()


def test_the_example_of_an_exercise_is_one(tmp_path):
    """Its answer passes its own grader, blank it fails, and every mutant is rejected."""
    namespace = {"__name__": "example"}
    programs = blocks("CONTRIBUTING.md", "python")
    (grader_text,) = [text for text in programs if not is_source(text)]
    (source,) = [text for text in programs if 'tags=["solution"]' in text]
    exec(compile(grader_text, "CONTRIBUTING.md", "exec"), namespace)
    (grader,) = namespace["GRADERS"]
    cells = cells_of(source, tmp_path)

    def answer(choose):
        scope = {}
        (cell,) = [c for c in choose(cells, "example") if "solution" in c.tags]
        exec(compile(cell.text, "CONTRIBUTING.md", "exec"), scope)
        return scope[grader.reference.__name__]

    assert f"check.{grader.name}(" in source and f'exercise="{grader.key}"' in source
    assert grader.grade(answer(edition.solved), SEEDS[0]) > 3
    with pytest.raises(NotImplementedError, match=rf"^exercise {grader.key}: "):
        grader.grade(answer(edition.blank), SEEDS[0])
    assert len(grader.mutants) >= 3
    for mutant in grader.mutants.values():
        with pytest.raises(CheckFailed):
            grader.grade(mutant, SEEDS[0])


def test_the_example_of_an_entry_has_the_fields_of_a_written_chapter():
    (chapter,) = map(json.loads, blocks("CONTRIBUTING.md", "json"))
    assert set(chapter) == set(chapters()["01_problem_setting"])
    assert len(chapter["outcomes"]) == len(chapter["recall"]) == 3
    entry = chapters()["02_latency"]
    assert (chapter["part"], chapter["title"]) == (entry["part"], entry["title"])


def test_the_limits_are_those_of_the_build():
    text = TEXTS["course/README.md"]
    code, answer = lint.CODE_LINES, lint.ANSWER_LINES
    assert f"| code cell | {code} lines (an answer of an exercise: {answer})" in text
    assert f"| prose cell | {lint.PROSE_WORDS} words |" in text
    assert f"at most {lint.PROSE_WORDS} words" in text


def test_every_colour_is_explained_as_it_is_drawn():
    rows = MARK_ROW.findall(TEXTS["course/README.md"])
    assert rows == [(mark.label, mark.colour) for mark in MARKS.values()]


def test_the_needs_are_those_of_the_set_up():
    text = TEXTS["README.md"]
    assert f"{lab.SPACE_CPU:g} GB of disk ({lab.SPACE_GPU:g} GB with an NVIDIA GPU)" in text


def test_the_changelog_knows_the_version():
    from llmserve_lab import __version__

    assert re.search(rf"\b{re.escape(__version__)}\b", TEXTS["CHANGELOG.md"])
