"""The training text: the source of Python's own standard library, which every learner has on disk.

Python is distributed under the PSF licence. Files are split by a hash of their path, so that the
same files are held out on every machine with the same Python.
"""

from __future__ import annotations

import hashlib
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SKIPPED_FOLDERS = frozenset(
    {
        "test",
        "tests",
        "idlelib",
        "idle_test",
        "site-packages",
        "dist-packages",
        "__pycache__",
        "lib-dynload",
        "encodings",
        "pydoc_data",
        "turtledemo",
        "ensurepip",
        "__phello__",
    }
)
GENERATED_FILES = frozenset({"html/entities.py", "stringprep.py", "token.py", "keyword.py"})
SMALLEST_FILE = 400  # bytes; shorter files are only a notice and an import
HELD_OUT_ONE_IN = 12
SAMPLE_FOLDER = Path(__file__).parent / "held_out"
SAMPLE_BYTES = (4_000, 30_000)  # of the files that ship with the package
SAMPLE_LICENCE = "LICENSE-PSF"
SLASH_IN_SAMPLE = "--"


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One library file: `name` is its path below the library's folder, with forward slashes."""

    name: str
    text: str

    @property
    def held_out(self) -> bool:
        digest = hashlib.sha256(self.name.encode()).digest()
        return int.from_bytes(digest[:4], "big") % HELD_OUT_ONE_IN == 0

    @property
    def num_bytes(self) -> int:
        return len(self.text.encode())


def standard_library() -> list[SourceFile]:
    """Every file of the running Python's library that is worth learning from, sorted by name."""
    root = Path(sysconfig.get_paths()["stdlib"])
    return list(_read_all(root))


def split(files: list[SourceFile]) -> tuple[list[SourceFile], list[SourceFile]]:
    """The files to train on, and the files that training never sees."""
    return [f for f in files if not f.held_out], [f for f in files if f.held_out]


def digest(files: list[SourceFile]) -> str:
    """A SHA-256 over names and texts: two machines with the same digest have the same corpus."""
    total = hashlib.sha256()
    for file in files:
        total.update(file.name.encode() + b"\0" + file.text.encode() + b"\0")
    return total.hexdigest()


def held_out_sample() -> list[SourceFile]:
    """The held-out files that ship with this package: the same text on every machine."""
    paths = sorted(SAMPLE_FOLDER.glob("*.txt"))
    return [
        SourceFile(path.stem.replace(SLASH_IN_SAMPLE, "/"), path.read_text(encoding="utf-8"))
        for path in paths
        if path.stem != SAMPLE_LICENCE
    ]


def write_sample(held_out: list[SourceFile]) -> None:
    """Ship the medium-sized held-out files, whose names are kept with `--` for a slash."""
    SAMPLE_FOLDER.mkdir(exist_ok=True)
    low, high = SAMPLE_BYTES
    for file in held_out:
        if low <= file.num_bytes <= high:
            name = file.name.replace("/", SLASH_IN_SAMPLE) + ".txt"
            (SAMPLE_FOLDER / name).write_text(file.text, encoding="utf-8")


def _read_all(root: Path) -> Iterator[SourceFile]:
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root).as_posix()
        if not _is_wanted(name) or path.stat().st_size < SMALLEST_FILE:
            continue
        try:
            yield SourceFile(name, path.read_text(encoding="utf-8"))
        except UnicodeDecodeError:
            continue


def _is_wanted(name: str) -> bool:
    folders = name.split("/")[:-1]
    if name in GENERATED_FILES or name.startswith("_sysconfigdata"):
        return False
    return not any(part in SKIPPED_FOLDERS or part.startswith("config-") for part in folders)
