"""Load a model and its tokenizer: one of the bundled pair, a local folder, or a hub name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llmserve_lab.models.hub import hub_reachable

BUNDLED = ("lab-target", "lab-draft")
HOW_TO_REPAIR = "delete the folder and fetch it again, or reinstall llmserve-lab"


class ModelNotFoundError(LookupError):
    """There is no such model here, and none can be fetched."""


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model ready to run, with its tokenizer. `why_dtype` says how the dtype was chosen."""

    name: str
    model: Any
    tokenizer: Any
    why_dtype: str

    @property
    def num_parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.model.parameters())


def bundled_path(name: str) -> Path:
    """The folder of a bundled model, in Hugging Face format.

    Raises:
        ModelNotFoundError: no such model is bundled.
    """
    if name not in BUNDLED:
        raise ModelNotFoundError(f"{name!r} is not bundled; there are {' and '.join(BUNDLED)}.")
    return Path(__file__).parent / name


def load(name: str | Path, dtype: Any = "auto", device: Any = "auto") -> LoadedModel:
    """Load a causal language model, with dtype and device from the hardware unless given.

    name: "lab-target", "lab-draft", a local folder, or a hub name such as "Qwen/Qwen3-0.6B".
    dtype: "auto", "float32", "bfloat16", "float16" or a torch dtype. device: "auto", a torch
    device, or "map" to spread a model over several GPUs with accelerate.

    Raises:
        ModelNotFoundError: unknown name, or a hub name while the hub cannot be reached.
        ValueError: a damaged weights file, or a dtype that is none.
    """
    from llmserve_lab.models.hardware import pick_device, pick_dtype

    source = _source(name)
    chosen_device = pick_device() if device in ("auto", "map") else _device(device)
    chosen, why = pick_dtype(chosen_device) if dtype == "auto" else (_dtype(dtype), "as asked for")
    options = {"device_map": "auto"} if device == "map" else {}
    model, tokenizer = _from_pretrained(source, chosen, options)
    if device != "map":
        model = model.to(chosen_device)
    return LoadedModel(str(name), model.eval(), tokenizer, why)


def _source(name: str | Path) -> str:
    text = str(name)
    if text in BUNDLED:
        return str(bundled_path(text))
    if (Path(text) / "config.json").is_file():
        return text
    if Path(text).is_dir():
        raise ModelNotFoundError(f"The folder {text} holds no config.json: it is not a model.")
    if text.count("/") != 1 or text.startswith((".", "~", "/")):
        raise ModelNotFoundError(
            f"There is no model {text!r}: use {' or '.join(BUNDLED)}, a folder with a "
            "config.json, or a hub name such as Qwen/Qwen3-0.6B."
        )
    if not _is_cached(text) and not hub_reachable():
        raise ModelNotFoundError(
            f"{text} is not on this machine and the model hub cannot be reached; use "
            f"{' or '.join(BUNDLED)}, which need no network, or a local folder."
        )
    return text


def _is_cached(name: str) -> bool:
    from huggingface_hub import try_to_load_from_cache

    return isinstance(try_to_load_from_cache(name, "config.json"), str)


def _from_pretrained(source: str, dtype: Any, options: dict[str, Any]) -> tuple[Any, Any]:
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM, AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(source)
        with _no_progress_bar(when=Path(source).is_dir()):
            model = AutoModelForCausalLM.from_pretrained(source, dtype=dtype, **options)
    except SafetensorError as error:
        raise ValueError(
            f"The weights in {source} are damaged ({error}); {HOW_TO_REPAIR}."
        ) from error
    except OSError as error:
        first_line = str(error).strip().splitlines()[0]
        raise ModelNotFoundError(f"{source} could not be loaded: {first_line}") from error
    return model, tokenizer


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


def _device(device: Any) -> Any:
    import torch

    chosen = torch.device(device)
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise ValueError('There is no CUDA device here; use device="cpu" or leave it out.')
    return chosen


def _dtype(dtype: Any) -> Any:
    import torch

    chosen = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if not isinstance(chosen, torch.dtype) or not chosen.is_floating_point:
        raise ValueError(
            f'dtype must be "auto", "float32", "bfloat16" or "float16", not {dtype!r}.'
        )
    return chosen
