"""What `course/settings.toml` says: where the course is published, in which languages."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

SETTINGS = Path("course/settings.toml")


class SourceError(ValueError):
    """A course source, or the settings, cannot be built; the text names each fault."""


@dataclass(frozen=True, slots=True)
class Settings:
    root: Path  # the repository
    repository: str  # its address on GitHub
    branch: str
    editions: tuple[str, ...]  # language codes; the first is the edition of record

    @property
    def record(self) -> str:
        return self.editions[0]

    def colab_url(self, notebook: Path) -> str:
        """Where Colab opens the notebook, a path relative to the repository."""
        owner_and_name = self.repository.removeprefix("https://github.com/")
        base = f"https://colab.research.google.com/github/{owner_and_name}"
        return f"{base}/blob/{self.branch}/{notebook.as_posix()}"

    @property
    def requirement(self) -> str:
        """What pip installs on a machine that has only the notebook."""
        return f"llmserve-lab @ git+{self.repository}@{self.branch}"


def read_settings(root: Path) -> Settings:
    """The settings of the repository at `root`.

    Raises:
        SourceError: there are none, or they are incomplete.
    """
    path = root / SETTINGS
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        editions = tuple(table["editions"])
        settings = Settings(root, table["repository"].rstrip("/"), table["branch"], editions)
    except FileNotFoundError as error:
        raise SourceError(f"{root} has no {SETTINGS}: run this from the repository.") from error
    except (tomllib.TOMLDecodeError, KeyError) as error:
        raise SourceError(f"{path} cannot be used: {error}") from error
    if not editions:
        raise SourceError(f"{path} names no edition.")
    return settings
