"""Write the notebooks from their sources: `python -m llmserve_lab.course.build [--check]`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import nbformat

from llmserve_lab.course import edition, lint
from llmserve_lab.course.render import NAMESPACE, digest, notebook_text, opening
from llmserve_lab.course.settings import SETTINGS, Settings, SourceError, read_settings
from llmserve_lab.course.source import Cell, raise_faults, read_source

Form = Callable[[list[Cell], str], list[Cell]]
FORMS: dict[str, tuple[str, Form]] = {  # written folder: (source folder, how cells are chosen)
    "notebooks": ("course/chapters", edition.chapter),
    "exercises": ("course/exercises", edition.blank),
    "solutions": ("course/exercises", edition.solved),
}


def build(settings: Settings, langs: Sequence[str]) -> dict[Path, str]:
    """Each notebook's path, relative to the repository, and its text. Writes nothing.

    Raises:
        SourceError: naming every fault in every source.
    """
    texts: dict[Path, str] = {}
    faults: list[str] = []
    for lang in langs:
        for folder in FORMS:
            for source in sorted((settings.root / FORMS[folder][0]).glob("[0-9]*.py")):
                target = _folder(settings, folder, lang) / f"{source.stem}.ipynb"
                try:
                    texts[target] = _build_one(settings, source, target, lang)
                except SourceError as error:
                    faults += str(error).splitlines()
    if faults:
        raise SourceError("\n".join(dict.fromkeys(faults)))
    return texts


def differences(settings: Settings, texts: dict[Path, str], langs: Sequence[str]) -> list[str]:
    """How the folders differ from `texts`: one "stale", "missing" or "extra" line for each file."""
    found = [
        f"{'stale' if (settings.root / path).exists() else 'missing'}: {path.as_posix()}"
        for path in _changed(settings, texts)
    ]
    return found + [f"extra: {path.as_posix()}" for path in _extra(settings, texts, langs)]


def write(settings: Settings, texts: dict[Path, str], force: bool = False) -> list[Path]:
    """Write what changed; returns those paths.

    Raises:
        SourceError: a file in exercises/ holds someone's answers; nothing was written.
    """
    changed = _changed(settings, texts)
    faults = [
        f"{path.as_posix()} was edited by hand: move it away, or pass --force to overwrite it"
        for path in changed
        if path.parts[0] == "exercises" and not force and _edited(settings.root / path)
    ]
    if faults:
        raise SourceError("\n".join(faults))
    for path in changed:
        file = settings.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(texts[path].encode())
    return changed


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    options = _parser().parse_args(arguments)
    try:
        settings = read_settings(options.root.resolve())
        langs = options.lang or settings.editions
        texts = build(settings, langs)
        if options.check:
            return _report(differences(settings, texts, langs))
        for path in write(settings, texts, options.force):
            print(f"wrote {path.as_posix()}")
        for path in _extra(settings, texts, langs):
            print(f"extra: {path.as_posix()} has no source; move or delete it", file=sys.stderr)
    except SourceError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _build_one(settings: Settings, source: Path, target: Path, lang: str) -> str:
    choose = FORMS[target.parts[0]][1]
    cells = edition.in_language(read_source(source), lang, settings.record, source.name)
    cells = choose(cells, source.name)
    raise_faults(source.name, lint.faults(cells))
    return notebook_text(opening(settings, target, lang) + cells)


def _folder(settings: Settings, folder: str, lang: str) -> Path:
    return Path(folder) if lang == settings.record else Path(folder, lang)


def _changed(settings: Settings, texts: dict[Path, str]) -> list[Path]:
    files = {path: settings.root / path for path in texts}
    return [
        path
        for path, file in files.items()
        if not file.exists() or file.read_bytes() != texts[path].encode()
    ]


def _extra(settings: Settings, texts: dict[Path, str], langs: Sequence[str]) -> list[Path]:
    folders = [_folder(settings, folder, lang) for folder in FORMS for lang in langs]
    present = (file for folder in folders for file in (settings.root / folder).glob("*.ipynb"))
    return sorted({file.relative_to(settings.root) for file in present} - set(texts))


def _edited(file: Path) -> bool:
    """Whether a cell's text differs from what the builder wrote (outputs may)."""
    try:
        notebook = nbformat.read(file, as_version=4)
        written = notebook.metadata[NAMESPACE]["digest"]
    except FileNotFoundError:
        return False
    except (ValueError, KeyError, AttributeError):  # not a notebook that the builder wrote
        return True
    return bool(written != digest(cell.source for cell in notebook.cells))


def _report(found: list[str]) -> int:
    for line in found:
        print(line)
    if found:
        print("Run python -m llmserve_lab.course.build and commit what it writes.")
    return 1 if found else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m llmserve_lab.course.build", description=__doc__
    )
    parser.add_argument("--check", action="store_true", help="only say which files differ")
    parser.add_argument("--lang", action="append", help="build this edition (may be repeated)")
    parser.add_argument("--force", action="store_true", help="overwrite edited exercises")
    parser.add_argument("--root", type=Path, default=Path(), help=f"the folder with {SETTINGS}")
    return parser


if __name__ == "__main__":
    sys.exit(main())
