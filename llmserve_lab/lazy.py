"""Names that load their module at first use, so that importing a package stays cheap."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class LazyPackage(ModuleType):
    """A package whose public names live in submodules. Where a name is also a submodule's
    (`predict`, `doctor`), it always means what the submodule defines, whichever came first."""

    def __getattr__(self, name: str) -> Any:
        homes: dict[str, str] = self.__dict__.get("_homes", {})
        if name not in homes:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return getattr(import_module(homes[name]), name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__.get("_homes", {}) and isinstance(value, ModuleType):
            return  # the import system binding a submodule over the name
        super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*self.__dict__, *self.__dict__["_homes"]})


def export(package: str, homes: dict[str, str]) -> None:
    """Let `package` offer each name from the module `homes[name]`, imported when first used."""
    module = sys.modules[package]
    module.__dict__["_homes"] = homes
    module.__class__ = LazyPackage
