import json
import os
import subprocess
import sys
from types import ModuleType
from typing import ClassVar

import nbformat
import pytest

from llmserve_lab.course.build import main
from llmserve_lab.course.lint import count_words

SETTINGS = """
repository = "https://github.com/owner/name"
branch = "main"
editions = ["en", "ko"]
"""
CHAPTER = """
# %% [markdown] key="00-title" lang="en"
# # Title

# %% [markdown] key="00-title" lang="ko"
# # 제목

# %% key="00-imports" tags=["hide"]
import math

# %% [markdown] key="00-root" lang="en"
# A root:

# %% [markdown] key="00-root" lang="ko"
# 제곱근:

# %%
math.sqrt(2)
"""
EXERCISE = '''
# %% [markdown] key="01-title" lang="en"
# # Exercise

# %% [markdown] key="01-title" lang="ko"
# # 연습

# %% key="01-imports"
import math


# %% key="01-f" exercise="01.1" tags=["solution"]
def f(x):
    """Twice x, for positive x."""
    if x > 0:
        # BEGIN SOLUTION: double "x"
        return x + x
        # END SOLUTION
    return 0


# %% key="01-f-check" exercise="01.1" tags=["check"]
assert f(2) == 4

# %% [markdown] key="01-hint" lang="en" tags=["hint"]
# Add.

# %% [markdown] key="01-hint" lang="ko" tags=["hint"]
# 더하기.


# %% key="01-g" exercise="01.2" tags=["stub"]
def g(x):
    raise NotImplementedError("exercise 01.2: g")


# %% key="01-g" exercise="01.2" tags=["solution"]
def g(x):
    return math.sqrt(x)
'''


class Repository:
    def __init__(self, root):
        self.root = root
        self.put("course/settings.toml", SETTINGS)
        self.put("course/chapters/00_start.py", CHAPTER)
        self.put("course/exercises/01_first.py", EXERCISE)

    def put(self, path, text):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def edit(self, path, old, new):
        text = (self.root / path).read_text(encoding="utf-8")
        assert old in text
        self.put(path, text.replace(old, new))

    def build(self, *arguments):
        return main(["--root", str(self.root), *arguments])

    def notebook(self, path):
        return nbformat.read(self.root / path, as_version=4)

    def cells(self, path, skip=2):
        """The source's own cells, after the link and the setup."""
        return self.notebook(path).cells[skip:]

    def files(self):
        return {
            path.relative_to(self.root).as_posix(): path.read_bytes()
            for path in self.root.rglob("*.ipynb")
        }


@pytest.fixture
def repository(tmp_path):
    return Repository(tmp_path)


def test_every_edition_of_every_notebook_is_written(repository):
    assert repository.build() == 0
    names = {"notebooks": "00_start", "exercises": "01_first", "solutions": "01_first"}
    assert set(repository.files()) == {
        f"{folder}/{lang}{name}.ipynb" for folder, name in names.items() for lang in ("", "ko/")
    }


def test_one_edition_alone(repository):
    assert repository.build("--lang", "en") == 0
    assert not any("/ko/" in path for path in repository.files())
    assert repository.build("--check", "--lang", "en") == 0
    assert repository.build("--check") == 1


def test_editions_share_code_and_differ_in_prose(repository):
    repository.build()
    english = repository.cells("notebooks/00_start.ipynb")
    korean = repository.cells("notebooks/ko/00_start.ipynb")
    assert [cell.source for cell in english] == [
        "# Title",
        "import math",
        "A root:",
        "math.sqrt(2)",
    ]
    assert [cell.source for cell in korean] == ["# 제목", "import math", "제곱근:", "math.sqrt(2)"]
    shared = [a.id == b.id for a, b in zip(english, korean, strict=True)]
    assert shared == [False, True, False, True]


def test_the_bytes_do_not_depend_on_the_process(repository):
    repository.build()
    first = repository.files()
    for path in first:
        (repository.root / path).unlink()
    command = [sys.executable, "-m", "llmserve_lab.course.build", "--root", str(repository.root)]
    environment = {**os.environ, "PYTHONHASHSEED": "7", "LC_ALL": "C"}
    subprocess.run(command, check=True, env=environment, capture_output=True)
    assert repository.files() == first


def test_ids_stay_when_the_text_of_a_keyed_cell_or_its_place_changes(repository):
    repository.build()
    before = [cell.id for cell in repository.cells("notebooks/00_start.ipynb")]
    repository.edit("course/chapters/00_start.py", "# A root:", "# The root:")
    new = '# %% key="00-new"\nmath.pi\n\n# %% [markdown] key="00-root" lang="en"'
    old = '# %% [markdown] key="00-root" lang="en"'
    repository.edit("course/chapters/00_start.py", old, new)
    repository.build()
    after = repository.cells("notebooks/00_start.ipynb")
    assert [cell.id for cell in after if cell.source != "math.pi"] == before
    assert len({cell.id for cell in after}) == 5


def test_notebooks_are_valid_and_carry_no_results(repository):
    repository.build()
    for path in repository.files():
        notebook = repository.notebook(path)
        nbformat.validate(notebook)
        assert notebook.metadata.kernelspec.name == "python3"
        assert "widgets" not in notebook.metadata
        for cell in notebook.cells:
            assert cell.cell_type == "markdown" or (not cell.outputs and not cell.execution_count)


def test_every_notebook_opens_in_colab(repository):
    repository.build()
    link, setup = repository.notebook("notebooks/ko/00_start.ipynb").cells[:2]
    address = "https://colab.research.google.com/github/owner/name/blob/main/notebooks/ko/"
    assert link.source == f"[Open in Colab]({address}00_start.ipynb)"
    guard, install = setup.source.splitlines()[-2:]
    assert guard == 'if "google.colab" in sys.modules:'
    assert install.startswith("    %pip install") and "--no-deps" in install
    assert "llmserve-lab @ git+https://github.com/owner/name@main" in install
    assert setup.metadata.tags == ["setup"] and setup.metadata.jupyter.source_hidden


@pytest.mark.parametrize("on_colab", [True, False])
def test_the_setup_installs_the_package_on_colab_only(repository, monkeypatch, on_colab):
    from IPython.core.inputtransformer2 import TransformerManager

    class Shell:
        calls: ClassVar = []

        def run_line_magic(self, *call):
            self.calls.append(call)

    if on_colab:
        monkeypatch.setitem(sys.modules, "google.colab", ModuleType("google.colab"))
    else:
        monkeypatch.delitem(sys.modules, "google.colab", raising=False)
    repository.build()
    source = repository.notebook("notebooks/00_start.ipynb").cells[1].source
    exec(TransformerManager().transform_cell(source), {"get_ipython": Shell})
    wanted = 'install -q --no-deps "llmserve-lab @ git+https://github.com/owner/name@main"'
    assert Shell.calls == [("pip", wanted)] * on_colab


def test_answers_are_blanked_in_place(repository):
    repository.build()
    blank = {
        cell.metadata.get("key"): cell for cell in repository.cells("exercises/01_first.ipynb")
    }
    assert blank["01-f"].source.splitlines()[2:] == [
        "    if x > 0:",
        "        raise NotImplementedError('exercise 01.1: double \"x\"')",
        "    return 0",
    ]
    assert blank["01-g"].source.endswith('raise NotImplementedError("exercise 01.2: g")')
    assert "01-hint" in blank
    assert "x + x" not in (repository.root / "exercises/01_first.ipynb").read_text()


def test_solutions_show_the_answer_without_marks_or_hints(repository):
    repository.build()
    text = (repository.root / "solutions/01_first.ipynb").read_text()
    assert "return x + x" in text and "math.sqrt(x)" in text
    assert "SOLUTION" not in text and "NotImplementedError" not in text and "Add." not in text


def test_an_answer_has_the_same_id_in_the_exercise_and_its_solution(repository):
    repository.build()
    ids = [
        {cell.metadata.get("key"): cell.id for cell in repository.cells(f"{folder}/01_first.ipynb")}
        for folder in ("exercises", "solutions")
    ]
    assert ids[0]["01-f"] == ids[1]["01-f"] and ids[0]["01-g"] == ids[1]["01-g"]


def test_a_long_task_is_wrapped_as_the_formatter_would(repository):
    repository.edit("course/exercises/01_first.py", 'double "x"', "double " + "very " * 16 + "x")
    repository.build()
    command = [sys.executable, "-m", "ruff", "format", "--check", "--line-length", "100"]
    subprocess.run([*command, repository.root / "exercises"], check=True)


def test_check_names_each_file_that_differs_and_writes_nothing(repository, capsys):
    repository.build()
    assert repository.build("--check") == 0
    repository.edit("course/chapters/00_start.py", "# # Title", "# # A title")
    (repository.root / "solutions/01_first.ipynb").unlink()
    (repository.root / "exercises/ko/09_old.ipynb").write_text("{}")
    before = repository.files()
    capsys.readouterr()
    assert repository.build("--check") == 1
    assert capsys.readouterr().out.splitlines()[:-1] == [
        "stale: notebooks/00_start.ipynb",
        "missing: solutions/01_first.ipynb",
        "extra: exercises/ko/09_old.ipynb",
    ]
    assert repository.files() == before


def test_an_executed_notebook_is_stale(repository, capsys):
    repository.build()
    _run_first_cell(repository.root / "notebooks/00_start.ipynb")
    assert repository.build("--check") == 1
    assert "stale: notebooks/00_start.ipynb" in capsys.readouterr().out


def _run_first_cell(file):
    notebook = nbformat.read(file, as_version=4)
    notebook.cells[1].execution_count = 1
    nbformat.write(notebook, file)


def test_answers_that_someone_wrote_are_not_overwritten(repository, capsys):
    repository.build()
    path = "exercises/01_first.ipynb"
    repository.edit(path, "    return 0", "    return 1")
    answered = repository.files()
    repository.edit("course/chapters/00_start.py", "# # Title", "# # A title")
    assert repository.build() == 1
    assert f"{path} was edited by hand" in capsys.readouterr().err
    assert repository.files() == answered
    assert repository.build("--force") == 0 and repository.build("--check") == 0


def test_an_exercise_that_was_only_run_is_rewritten(repository):
    repository.build()
    _run_first_cell(repository.root / "exercises/01_first.ipynb")
    assert repository.build() == 0 and repository.build("--check") == 0


def test_a_leftover_is_named_and_kept(repository, capsys):
    repository.put("notebooks/mine.ipynb", "{}")
    assert repository.build() == 0
    assert "extra: notebooks/mine.ipynb" in capsys.readouterr().err
    assert (repository.root / "notebooks/mine.ipynb").read_text() == "{}"


CHAPTER_FILE, EXERCISE_FILE = "course/chapters/00_start.py", "course/exercises/01_first.py"
LONG_CODE = "\n".join(["x = 1"] * 16)
FAULTS = {
    "no translation": (
        CHAPTER_FILE,
        '# %% [markdown] key="00-root" lang="ko"\n# 제곱근:\n',
        "",
        "00_start.py: markdown cell '00-root' (en) has no 'ko' translation",
    ),
    "no record": (
        CHAPTER_FILE,
        '# %% [markdown] key="00-root" lang="en"\n# A root:\n',
        "",
        "'00-root' (ko) is a translation of no en cell",
    ),
    "no lang": (CHAPTER_FILE, 'key="00-root" lang="en"', 'key="00-root"', "needs lang"),
    "code with lang": (CHAPTER_FILE, "# %%\nmath", '# %% lang="en"\nmath', "shared by all"),
    "same key": (CHAPTER_FILE, "# %%\nmath", '# %% key="00-imports"\nmath', "its own key"),
    "same text": (CHAPTER_FILE, "# %%\n", "# %%\nmath.sqrt(2)\n\n# %%\n", "its own key"),
    "unknown tag": (CHAPTER_FILE, '["hide"]', '["hidden"]', "unknown tag 'hidden'"),
    "unknown attribute": (CHAPTER_FILE, "tags=", "tag=", "unknown attribute 'tag'"),
    "key with capitals": (CHAPTER_FILE, '"00-imports"', '"00 Imports"', "lower-case"),
    "answer in a chapter": (
        CHAPTER_FILE,
        "# %%\nmath",
        '# %% key="a" exercise="00.1" tags=["check"]\nmath',
        "belongs in course/exercises/",
    ),
    "no cell": (CHAPTER_FILE, CHAPTER, "", "00_start.py: there is no cell"),
    "long code": (CHAPTER_FILE, "math.sqrt(2)", LONG_CODE, "has 16 lines (at most 15)"),
    "long prose": (CHAPTER_FILE, "A root:", "word " * 81, "has 81 words (at most 80)"),
    "no imports": (CHAPTER_FILE, "import math", "1 + 1", "should hold the imports"),
    "syntax": (CHAPTER_FILE, "math.sqrt(2)", "math.sqrt(", "not valid Python"),
    "no key": (EXERCISE_FILE, 'key="01-f" ', "", "is an answer and needs key"),
    "no exercise": (EXERCISE_FILE, '01-f" exercise="01.1"', '01-f"', 'needs key="..." and'),
    "check of what": (EXERCISE_FILE, '01-f-check" exercise="01.1"', '01-f-check"', "is a check"),
    "no end": (EXERCISE_FILE, "        # END SOLUTION\n", "", "without its END SOLUTION"),
    "no begin": (EXERCISE_FILE, '        # BEGIN SOLUTION: double "x"\n', "", "out of order"),
    "begin twice": (EXERCISE_FILE, "return x + x", "# BEGIN SOLUTION: again", "out of order"),
    "no task": (EXERCISE_FILE, ': double "x"', "", "what to write here"),
    "no tag": (EXERCISE_FILE, 'exercise="01.1" tags=["solution"]', "", 'needs tags=["solution"]'),
    "no stub": (
        EXERCISE_FILE,
        '01-g" exercise="01.2" tags=["stub"]',
        '01-x"',
        "or a stub of the same key",
    ),
    "settings": ("course/settings.toml", "repository", "repo", "cannot be used: 'repository'"),
}


@pytest.mark.parametrize(("path", "old", "new", "told"), FAULTS.values(), ids=FAULTS)
def test_a_fault_is_named_and_nothing_is_written(repository, capsys, path, old, new, told):
    repository.edit(path, old, new)
    assert repository.build() == 1
    assert told in capsys.readouterr().err
    assert repository.files() == {}


def test_all_faults_are_named_at_once(repository, capsys):
    repository.edit(CHAPTER_FILE, '["hide"]', '["hidden"]')
    repository.edit(EXERCISE_FILE, 'key="01-f" ', "")
    assert repository.build() == 1
    told = capsys.readouterr().err.splitlines()
    assert [line.split(":")[0] for line in told] == ["00_start.py", "01_first.py"]


def test_outside_a_repository_it_says_so(tmp_path, capsys):
    assert main(["--root", str(tmp_path)]) == 1
    assert "run this from the repository" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("# Two words", 2),
        ("It's `max_tokens` at 1,024.5 tokens/s.", 5),
        ("A [link](https://a.b/c-d) and ![](x.png)", 3),
        ("with $n$ tokens\n\n$$a = b \\cdot c$$", 2),
        ("```python\nx = 1\n```\nafter", 1),
        ("첫 토큰까지 걸리는 시간", 4),
    ],
)
def test_words_are_counted_as_read(text, words):
    assert count_words(text) == words


def test_the_notebook_on_disk_is_utf8_with_one_final_newline(repository):
    repository.build()
    data = (repository.root / "notebooks/ko/00_start.ipynb").read_bytes()
    assert "제목".encode() in data and data.endswith(b"}\n") and b"\r" not in data
    assert json.loads(data)["nbformat"] == 4
