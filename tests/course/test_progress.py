import json
import os
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest

from llmserve_lab.course.progress import (
    NewerProgressError,
    ProgressWarning,
    Store,
    home_directory,
    open_store,
)


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "home" / "progress.json")


def test_put_then_get_survives_a_new_process(store):
    store.put("predictions", "01.rate", {"guess": 4, "tags": ["a", None]})
    again = Store(store.path)
    assert again.get("predictions", "01.rate") == {"guess": 4, "tags": ["a", None]}
    assert again.get("predictions", "01.other") is None
    assert again.items("quizzes") == {}
    assert json.loads(store.path.read_text())["format"] == 1


def test_entries_are_copies(store):
    value = {"list": [1]}
    store.put("quizzes", "q", value)
    value["list"].append(2)
    store.get("quizzes", "q")["list"].append(3)
    assert store.get("quizzes", "q") == {"list": [1]}


def test_numpy_scalars_become_numbers(store):
    store.put("predictions", "p", {"measured": np.float32(0.5), "n": np.int64(3)})
    assert store.get("predictions", "p") == {"measured": 0.5, "n": 3}


@pytest.mark.parametrize("value", [["not a dict"], {"x": object()}, {"x": {1, 2}}])
def test_what_json_cannot_hold_is_refused_and_nothing_is_lost(store, value):
    store.put("predictions", "kept", {"x": 1})
    with pytest.raises(TypeError, match="progress entry"):
        store.put("predictions", "p", value)
    assert store.items("predictions") == {"kept": {"x": 1}}


def test_reset_of_a_section_and_of_everything(store):
    store.put("predictions", "p", {"x": 1})
    store.put("quizzes", "q", {"x": 2})
    store.reset("predictions")
    assert store.items("predictions") == {} and store.items("quizzes") == {"q": {"x": 2}}
    store.reset()
    assert Store(store.path).items("quizzes") == {}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\xfe\x00",
        b"[]",
        b"{}",
        b'{"format": true, "sections": {}}',
        b'{"format": 1, "sections": {"predictions": [1]}}',
    ],
)
def test_a_broken_file_is_moved_aside_and_kept(store, content):
    store.path.parent.mkdir(parents=True)
    for number in (1, 2):
        store.path.write_bytes(content)
        with pytest.warns(ProgressWarning, match="kept as"):
            store.put("predictions", "p", {"x": number})
        assert store.get("predictions", "p") == {"x": number}
        aside = store.path.with_name(f"progress.broken-{number}.json")
        assert aside.read_bytes() == content


def test_reading_a_broken_file_also_moves_it_aside(store):
    store.path.parent.mkdir(parents=True)
    store.path.write_text("{")
    with pytest.warns(ProgressWarning, match="fresh one begins"):
        assert store.items("predictions") == {}
    assert not store.path.exists()


def test_a_file_of_a_newer_format_is_never_touched(store):
    store.path.parent.mkdir(parents=True)
    text = '{"format": 2, "sections": {"predictions": {}}, "new": 1}'
    store.path.write_text(text)
    for action in (
        lambda: store.put("predictions", "p", {"x": 1}),
        lambda: store.get("predictions", "p"),
        lambda: store.reset(),
    ):
        with pytest.raises(NewerProgressError, match=r"newer LLMServe Lab.*update the package"):
            action()
    assert store.path.read_text() == text
    assert not list(store.path.parent.glob("*broken*"))


def test_where_nothing_can_be_written_it_warns_once_and_remembers(tmp_path):
    (tmp_path / "file").write_text("in the way")
    store = Store(tmp_path / "file" / "progress.json")
    with pytest.warns(ProgressWarning, match="kept in memory") as caught:
        store.put("predictions", "p", {"x": 1})
        store.put("predictions", "q", {"x": 2})
    assert len(caught) == 1
    assert store.items("predictions") == {"p": {"x": 1}, "q": {"x": 2}}
    store.reset("predictions")
    assert store.items("predictions") == {}


def test_changes_kept_in_memory_go_in_with_the_next_that_can(store, monkeypatch):
    store.put("predictions", "before", {"x": 0})
    with monkeypatch.context() as patch, pytest.warns(ProgressWarning, match="No space"):
        patch.setattr(os, "replace", _disk_full)
        store.put("predictions", "during", {"x": 1})
    assert Store(store.path).get("predictions", "during") is None
    assert store.get("predictions", "during") == {"x": 1}
    store.put("predictions", "after", {"x": 2})
    assert list(Store(store.path).items("predictions")) == ["before", "during", "after"]


def _disk_full(*_):
    raise OSError(28, "No space left on device")


def test_a_failed_write_leaves_the_old_file_and_no_litter(store, monkeypatch):
    store.put("predictions", "p", {"x": 1})
    before = store.path.read_bytes()
    monkeypatch.setattr(os, "fsync", _disk_full)
    with pytest.warns(ProgressWarning):
        store.put("predictions", "p", {"x": 2})
    assert store.path.read_bytes() == before
    assert not list(store.path.parent.glob("*.tmp"))


WRITER = """
import sys
from llmserve_lab.course.progress import open_store
for i in range(20):
    open_store().put("quizzes", f"{sys.argv[1]}-{i}", {"i": i})
"""


def test_two_processes_lose_nothing_of_each_other(tmp_path):
    environment = {**os.environ, "LLMSERVE_LAB_HOME": str(tmp_path)}
    command = [sys.executable, "-c", WRITER]
    writers = [subprocess.Popen([*command, name], env=environment) for name in "abc"]
    assert [writer.wait(timeout=120) for writer in writers] == [0, 0, 0]
    assert len(Store(tmp_path / "progress.json").items("quizzes")) == 60


def test_threads_of_one_store_lose_nothing(store):
    def write(name):
        for i in range(20):
            store.put("quizzes", f"{name}-{i}", {"i": i})

    threads = [threading.Thread(target=write, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(Store(store.path).items("quizzes")) == 60


def test_a_stale_lock_file_does_not_block(store):
    store.path.parent.mkdir(parents=True)
    store.path.with_name("progress.json.lock").write_text("left by a crash")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        store.put("predictions", "p", {"x": 1})
    assert Store(store.path).get("predictions", "p") == {"x": 1}


def test_a_lock_that_a_live_program_keeps_costs_no_data(store, monkeypatch):
    import filelock

    monkeypatch.setattr(sys.modules[Store.__module__], "LOCK_SECONDS", 0.05)
    store.put("predictions", "p", {"x": 1})
    with filelock.FileLock(store.path.with_name("progress.json.lock")):
        with pytest.warns(ProgressWarning, match="another program holds"):
            store.put("predictions", "q", {"x": 2})
        assert store.items("predictions") == {"p": {"x": 1}, "q": {"x": 2}}


@pytest.mark.parametrize(
    ("platform", "environment", "expected"),
    [
        ("linux", {}, "{home}/.local/share/llmserve-lab"),
        ("linux", {"XDG_DATA_HOME": "/data"}, "/data/llmserve-lab"),
        ("linux", {"XDG_DATA_HOME": "relative"}, "{home}/.local/share/llmserve-lab"),
        ("darwin", {}, "{home}/Library/Application Support/llmserve-lab"),
        ("win32", {"APPDATA": "/roaming"}, "/roaming/llmserve-lab"),
        ("win32", {}, "{home}/AppData/Roaming/llmserve-lab"),
        ("win32", {"LLMSERVE_LAB_HOME": "/mine"}, "/mine"),
    ],
)
@pytest.mark.skipif(sys.platform == "win32", reason="the expected paths are POSIX paths")
def test_the_home_directory(monkeypatch, tmp_path, platform, environment, expected):
    for name in ("XDG_DATA_HOME", "APPDATA", "LLMSERVE_LAB_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "platform", platform)
    assert home_directory().as_posix() == expected.format(home=tmp_path)


def test_open_store_gives_one_store_for_each_home(monkeypatch, tmp_path):
    monkeypatch.setenv("LLMSERVE_LAB_HOME", str(tmp_path / "a"))
    first = open_store()
    assert open_store() is first
    monkeypatch.setenv("LLMSERVE_LAB_HOME", str(tmp_path / "b"))
    assert open_store() is not first and open_store().path.parent == tmp_path / "b"


def test_a_user_without_a_home_still_gets_a_place(monkeypatch):
    for name in ("XDG_DATA_HOME", "LLMSERVE_LAB_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", _no_home)
    monkeypatch.setattr(sys, "platform", "linux")
    assert home_directory().is_absolute()


def _no_home():
    raise RuntimeError("Could not determine home directory.")
