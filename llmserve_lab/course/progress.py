"""Where a learner's guesses and results are kept: one JSON file in the user's own directory."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

PROGRESS_FORMAT = 1
HOME_VARIABLE = "LLMSERVE_LAB_HOME"
LOCK_SECONDS = 10.0  # a write takes milliseconds; whoever holds the lock longer hangs

Sections = dict[str, dict[str, dict[str, Any]]]  # section -> key -> entry


class ProgressWarning(UserWarning):
    """Progress could not be read or kept as it should; the course goes on."""


class NewerProgressError(RuntimeError):
    """The progress file was written by a newer version of the course."""

    def _render_traceback_(self) -> list[str]:
        return [str(self)]  # all that Jupyter shows


class Store:
    """The entries of one progress file, by section and key.

    Safe for several notebooks at once: each change is read, applied and replaced under a lock
    that the operating system drops with its owner, so a crash leaves neither half a file nor a
    stale lock. Where the file cannot be written, changes wait in memory and go in with the next
    change that can be.

    Raises (all methods):
        NewerProgressError: the file's format is newer than this version reads; it is left alone.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).resolve()
        self._waiting: list[Callable[[Sections], None]] = []  # changes that are not in the file
        self._warned = False

    def get(self, section: str, key: str) -> dict[str, Any] | None:
        """The entry, a copy, or None."""
        return self.items(section).get(key)

    def items(self, section: str) -> dict[str, dict[str, Any]]:
        """All entries of a section, in the order in which they were first put."""
        sections = self._load()
        for change in self._waiting:
            change(sections)
        return sections.get(section, {})

    def put(self, section: str, key: str, value: dict[str, Any]) -> None:
        """Keep `value` (a dict that JSON can hold; numpy scalars become numbers).

        Raises:
            TypeError: `value` is not such a dict.
        """
        if not isinstance(value, dict):
            raise TypeError(f"A progress entry is a dict, not {type(value).__name__}.")
        entry = json.loads(json.dumps(value, default=_plain))
        self._apply(lambda sections: _put(sections, section, key, copy.deepcopy(entry)))

    def reset(self, section: str | None = None) -> None:
        """Forget one section, or everything."""
        self._apply(lambda sections: _reset(sections, section))

    def _apply(self, change: Callable[[Sections], None]) -> None:
        self._waiting.append(change)
        try:
            with self._lock():
                sections = self._read_or_set_aside()
                count = len(self._waiting)  # another thread may append meanwhile
                for waiting in self._waiting[:count]:
                    waiting(sections)
                self._write(sections)
                del self._waiting[:count]
        except NewerProgressError:
            self._waiting.remove(change)
            raise
        except OSError as error:
            self._warn_unwritable(error)

    def _load(self) -> Sections:
        if not self.path.exists():
            return {}
        try:
            with self._lock():
                return self._read_or_set_aside()
        except OSError:  # no lock in a read-only folder: the file itself may still be readable
            with contextlib.suppress(OSError, ValueError):
                return self._read()
        return {}

    def _read_or_set_aside(self) -> Sections:
        """The file's sections; a broken file is renamed first. Call with the lock held."""
        try:
            return self._read()
        except FileNotFoundError:
            return {}
        except ValueError as error:
            aside = self._free_name()
            os.replace(self.path, aside)
            warnings.warn(
                f"The progress file could not be read ({error}); it was kept as {aside}, "
                "and a fresh one begins.",
                ProgressWarning,
                stacklevel=2,
            )
            return {}

    def _read(self) -> Sections:
        data = json.loads(self.path.read_text(encoding="utf-8"))
        version = data.get("format") if isinstance(data, dict) else None
        if type(version) is not int or version < 1:
            raise ValueError("it is not a progress file")
        if version > PROGRESS_FORMAT:
            raise NewerProgressError(
                f"{self.path} was written by a newer LLMServe Lab (format {version}; this one "
                f"reads up to {PROGRESS_FORMAT}) and was left alone: update the package, or set "
                f"{HOME_VARIABLE} to another folder."
            )
        sections = data.get("sections")
        if not _well_formed(sections):
            raise ValueError("its sections are not as this course writes them")
        return sections

    def _write(self, sections: Sections) -> None:
        text = json.dumps({"format": PROGRESS_FORMAT, "sections": sections}, indent=1)
        handle, name = tempfile.mkstemp(dir=self.path.parent, prefix=".progress-", suffix=".tmp")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text + "\n")
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, self.path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.path.with_name(self.path.name + ".lock"), timeout=LOCK_SECONDS)
        try:
            lock.acquire()
        except Timeout as error:  # an OSError too, but its text does not say what to do
            raise TimeoutError(f"another program holds {lock.lock_file}") from error
        except NotImplementedError as error:
            raise OSError("the file system has no locks") from error
        try:
            yield
        finally:
            lock.release()

    def _free_name(self) -> Path:
        number = 1
        while (aside := self.path.with_name(f"{self.path.stem}.broken-{number}.json")).exists():
            number += 1
        return aside

    def _warn_unwritable(self, error: OSError) -> None:
        if self._warned:
            return
        self._warned = True
        warnings.warn(
            f"Progress cannot be saved in {self.path.parent} ({error.strerror or error}); it is "
            f"kept in memory until the kernel stops. Set {HOME_VARIABLE} to a folder you can "
            "write to.",
            ProgressWarning,
            stacklevel=2,
        )


def open_store() -> Store:
    """The store of this user: `progress.json` in `home_directory()`."""
    return _store_at(home_directory() / "progress.json")


def home_directory() -> Path:
    """Where this user's course data lives; the environment's LLMSERVE_LAB_HOME overrides it."""
    if override := os.environ.get(HOME_VARIABLE):
        return Path(override).expanduser()
    return _data_root() / "llmserve-lab"


def _data_root() -> Path:
    if sys.platform == "win32":
        return _from_environment("APPDATA", "AppData/Roaming")
    if sys.platform == "darwin":
        return _user_home() / "Library/Application Support"
    return _from_environment("XDG_DATA_HOME", ".local/share")


def _from_environment(name: str, below_home: str) -> Path:
    path = Path(os.environ.get(name, ""))
    return path if path.is_absolute() else _user_home() / below_home


def _user_home() -> Path:
    try:
        return Path.home()
    except RuntimeError:  # a container whose user has no entry in passwd
        return Path(tempfile.gettempdir())


@cache  # one store for each file, so that changes kept in memory are not lost
def _store_at(path: Path) -> Store:
    return Store(path)


def _put(sections: Sections, section: str, key: str, entry: dict[str, Any]) -> None:
    sections.setdefault(section, {})[key] = entry


def _reset(sections: Sections, section: str | None) -> None:
    if section is None:
        sections.clear()
    else:
        sections.pop(section, None)


def _well_formed(sections: Any) -> bool:
    return isinstance(sections, dict) and all(
        isinstance(entries, dict) and all(isinstance(entry, dict) for entry in entries.values())
        for entries in sections.values()
    )


def _plain(value: Any) -> Any:
    """A numpy or torch scalar as a Python number."""
    if callable(getattr(value, "item", None)):
        return value.item()
    raise TypeError(f"A progress entry holds JSON values, not {type(value).__name__}.")
