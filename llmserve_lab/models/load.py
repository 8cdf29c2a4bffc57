"""Load a model and its tokenizer: one of the bundled pair, a local folder, or a hub name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from llmserve_lab.models.hub import hub_reachable

BUNDLED = ("lab-target", "lab-draft")
LINEAR = ("auto", "int8")
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


def load(
    name: str | Path, dtype: Any = "auto", device: Any = "auto", linear: str = "auto"
) -> LoadedModel:
    """Load a causal language model, with dtype and device from the hardware unless given.

    name: "lab-target", "lab-draft", a local folder, or a hub name such as "Qwen/Qwen3-0.6B".
    dtype: "auto", "float32", "bfloat16", "float16" or a torch dtype. device: "auto", a torch
    device, or "map" to spread a model over several GPUs with accelerate. linear: "auto" for linear
    layers in the dtype, "int8" for W8A8, see `int8_linear`.

    Raises:
        ModelNotFoundError: unknown name, or a hub name while the hub cannot be reached.
        ValueError: damaged or incomplete files, or a dtype, device or linear that is none.
    """
    from llmserve_lab.models.hardware import fit_threads, pick_device, pick_dtype
    from llmserve_lab.models.int8_linear import linears_to_int8

    if linear not in LINEAR:
        raise ValueError(f'linear must be "auto" or "int8", not {linear!r}.')
    source = _source(name)
    fit_threads()
    chosen_device = pick_device() if device in ("auto", "map") else _device(device)
    chosen, why = pick_dtype(chosen_device) if dtype == "auto" else (_dtype(dtype), "as asked for")
    options: dict[str, Any] = _device_map() if device == "map" else {}
    model, tokenizer = _from_pretrained(source, chosen, options)
    model = model if device == "map" else model.to(chosen_device)
    if linear == "int8":
        linears_to_int8(model)
    return LoadedModel(str(name), model.eval(), tokenizer, why)


def as_loaded(model: str | Path | LoadedModel, dtype: Any, device: Any) -> LoadedModel:
    """What `load` returned, or what it returns for a name.

    Raises:
        ValueError: a loaded model with another dtype or device than "auto".
    """
    if not isinstance(model, LoadedModel):
        return load(model, dtype, device)
    if dtype != "auto" or device != "auto":
        raise ValueError("This model is loaded already: give dtype and device to load() instead.")
    return model


def _source(name: str | Path) -> str:
    text = str(name)
    if text in BUNDLED:
        return str(bundled_path(text))
    folder = Path(text).expanduser()
    if text and (folder / "config.json").is_file():
        return str(folder)
    if text and folder.is_dir():
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

    try:
        return _model(source, dtype, options), _tokenizer(source)
    except SafetensorError as error:
        raise ValueError(_damaged("weights", source, error)) from error
    except OSError as error:
        raise ModelNotFoundError(f"{source} could not be loaded: {_first_line(error)}.") from error


def _model(source: str, dtype: Any, options: dict[str, Any]) -> Any:
    """The model with all its weights: transformers fills what a file lacks with random numbers,
    and says so in a log only."""
    from transformers import AutoModelForCausalLM

    options |= {"output_loading_info": True, "ignore_mismatched_sizes": True}
    try:
        with _no_progress_bar(when=Path(source).is_dir()):
            loaded: Any = AutoModelForCausalLM.from_pretrained(source, dtype=dtype, **options)
    except ValueError as error:
        raise ValueError(f"{source} could not be loaded: {_first_line(error)}.") from error
    model, found = loaded
    wrong = sorted(map(str, (*found["missing_keys"], *found["mismatched_keys"])))
    if wrong:
        what = f"{len(wrong)} missing or of a wrong shape, the first is {wrong[0]}"
        raise ValueError(_damaged("weights", source, what))
    return model


def _tokenizer(source: str) -> Any:
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(source)
    except OSError:
        raise
    except Exception as error:  # the tokenizers library raises bare Exceptions
        raise ValueError(_damaged("tokenizer", source, error)) from error


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


def _device_map() -> dict[str, Any]:
    if find_spec("accelerate") is None:
        raise ValueError('device="map" needs the package accelerate: pip install accelerate.')
    return {"device_map": "auto"}


def _device(device: Any) -> Any:
    import torch

    try:
        chosen = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise ValueError(
            f'device must be "auto", "cpu", "cuda", "map" or a torch device, not {device!r}.'
        ) from error
    if chosen.type == "cuda" and (chosen.index or 0) >= torch.cuda.device_count():
        raise ValueError(f'There is no device {chosen} here; use device="cpu" or leave it out.')
    return chosen


def _dtype(dtype: Any) -> Any:
    import torch

    chosen = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if chosen not in (torch.float32, torch.bfloat16, torch.float16):
        raise ValueError(
            f'dtype must be "auto", "float32", "bfloat16" or "float16", not {dtype!r}.'
        )
    return chosen
