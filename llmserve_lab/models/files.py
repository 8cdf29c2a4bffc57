"""A model's files in Hugging Face format, read whole or refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HOW_TO_REPAIR = "delete the folder and fetch it again, or reinstall llmserve-lab"


class ModelNotFoundError(LookupError):
    """There is no such model here, and none can be fetched."""


def read_config(source: str) -> Any:
    """The model's settings.

    Raises:
        ModelNotFoundError: files are missing.
    """
    from transformers import AutoConfig

    with _explained(source):
        return AutoConfig.from_pretrained(source)


def read_model(source: str, dtype: Any, options: dict[str, Any]) -> Any:
    """The model with all its weights: transformers fills what a file lacks with random numbers,
    and says so in a log only. options: further ones of `from_pretrained`.

    Raises:
        ModelNotFoundError: files are missing.
        ValueError: they are damaged, or transformers refuses the options.
    """
    from transformers import AutoModelForCausalLM

    options |= {"output_loading_info": True, "ignore_mismatched_sizes": True}
    with _explained(source), _no_progress_bar(when=Path(source).is_dir()):
        try:
            loaded: Any = AutoModelForCausalLM.from_pretrained(source, dtype=dtype, **options)
        except ValueError as error:
            raise ValueError(f"{source} could not be loaded: {_first_line(error)}.") from error
    model, found = loaded
    wrong = sorted(map(str, (*found["missing_keys"], *found["mismatched_keys"])))
    if wrong:
        what = f"{len(wrong)} missing or of a wrong shape, the first is {wrong[0]}"
        raise ValueError(_damaged("weights", source, what))
    return model


def read_tokenizer(source: str) -> Any:
    """The tokenizer of a model.

    Raises:
        ModelNotFoundError: files are missing.
        ValueError: they are damaged.
    """
    from transformers import AutoTokenizer

    with _explained(source):
        try:
            return AutoTokenizer.from_pretrained(source)
        except OSError:
            raise
        except Exception as error:  # the tokenizers library raises bare Exceptions
            raise ValueError(_damaged("tokenizer", source, error)) from error


@contextmanager
def _explained(source: str) -> Iterator[None]:
    from safetensors import SafetensorError

    try:
        yield
    except SafetensorError as error:
        raise ValueError(_damaged("weights", source, error)) from error
    except OSError as error:
        raise ModelNotFoundError(f"{source} could not be loaded: {_first_line(error)}.") from error


def _damaged(what: str, source: str, why: Any) -> str:
    return f"The {what} in {source} cannot be used ({_first_line(why)}); {HOW_TO_REPAIR}."


def _first_line(text: Any) -> str:
    return (str(text).strip() or "no reason given").splitlines()[0].rstrip(".:")


@contextmanager
def _no_progress_bar(when: bool) -> Iterator[None]:
    """Reading local files takes no time that a bar would help with; a download does."""
    from transformers.utils import logging

    hide = when and logging.is_progress_bar_enabled()
    if hide:
        logging.disable_progress_bar()
    try:
        yield
    finally:
        if hide:
            logging.enable_progress_bar()
