"""Load a model and its tokenizer: one of the bundled pair, a local folder, or a hub name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmserve_lab.kv_cache import KVShape
from llmserve_lab.models.files import ModelNotFoundError, read_model, read_tokenizer
from llmserve_lab.models.hub import hub_reachable

if TYPE_CHECKING:
    from llmserve_lab.parallel.shared_model import SharedModel

BUNDLED = ("lab-target", "lab-draft")
LINEAR = ("auto", "int8")


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model ready to run, with its tokenizer. `why_dtype` says how the dtype was chosen. shared:
    with other processes; `model` is the part of this one then."""

    name: str
    model: Any
    tokenizer: Any
    why_dtype: str
    shared: SharedModel | None = None

    @property
    def num_parameters(self) -> int:
        """Of the whole model."""
        if self.shared is not None:
            return self.shared.num_parameters
        return sum(parameter.numel() for parameter in self.model.parameters())

    @property
    def kv_shape(self) -> KVShape:
        """What this process keeps of a token's keys and values."""
        return KVShape.of(self.model.config) if self.shared is None else self.shared.kv_shape

    def each(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """What `function(model, *arguments)` returns in each process that holds a part of it."""
        if self.shared is None:
            return [function(self.model, *arguments)]
        return self.shared.ranks.each(function, self.shared.part, *arguments)


def bundled_path(name: str) -> Path:
    """The folder of a bundled model, in Hugging Face format.

    Raises:
        ModelNotFoundError: no such model is bundled.
    """
    if name not in BUNDLED:
        raise ModelNotFoundError(f"{name!r} is not bundled; there are {' and '.join(BUNDLED)}.")
    return Path(__file__).parent / name


def load(
    name: str | Path,
    dtype: Any = "auto",
    device: Any = "auto",
    linear: str = "auto",
    tensor_parallel: bool = False,
) -> LoadedModel:
    """Load a causal language model, with dtype and device from the hardware unless given.

    name: "lab-target", "lab-draft", a local folder, or a hub name such as "Qwen/Qwen3-0.6B".
    dtype: "auto", "float32", "bfloat16", "float16" or a torch dtype. device: "auto", a torch
    device, or "map" to spread a model over several GPUs with accelerate. linear: "auto" for linear
    layers in the dtype, "int8" for W8A8, see `int8_linear`. tensor_parallel: split the model among
    the processes that torchrun started, one for each GPU. Only rank 0 returns: the others run what
    its engines run, until it ends.

    Raises:
        ModelNotFoundError: unknown name, or a hub name while the hub cannot be reached.
        ValueError: damaged or incomplete files, or a dtype, device or linear that is none.
    """
    from llmserve_lab.models.hardware import fit_threads, pick_device, pick_dtype
    from llmserve_lab.models.int8_linear import linears_to_int8

    if tensor_parallel:
        return _load_shared(name, dtype, device, linear)
    if linear not in LINEAR:
        raise ValueError(f'linear must be "auto" or "int8", not {linear!r}.')
    source = _source(name)
    fit_threads()
    chosen_device = pick_device() if device in ("auto", "map") else _device(device)
    chosen, why = pick_dtype(chosen_device) if dtype == "auto" else (_dtype(dtype), "as asked for")
    options: dict[str, Any] = _device_map() if device == "map" else {}
    model, tokenizer = read_model(source, chosen, options), read_tokenizer(source)
    model = model if device == "map" else model.to(chosen_device)
    if linear == "int8":
        linears_to_int8(model)
    return LoadedModel(str(name), model.eval(), tokenizer, why)


def as_loaded(
    model: str | Path | LoadedModel, dtype: Any, device: Any, tensor_parallel: bool
) -> LoadedModel:
    """What `load` returned, or what it returns for a name.

    Raises:
        ValueError: a loaded model with something else to load it by.
    """
    if not isinstance(model, LoadedModel):
        return load(model, dtype, device, tensor_parallel=tensor_parallel)
    if dtype != "auto" or device != "auto" or tensor_parallel:
        raise ValueError(
            "This model is loaded already: give dtype, device or tensor_parallel to load() instead."
        )
    return model


def _load_shared(name: str | Path, dtype: Any, device: Any, linear: str) -> LoadedModel:
    from llmserve_lab.models.hardware import pick_device, pick_dtype
    from llmserve_lab.parallel.launch import join
    from llmserve_lab.parallel.shared_model import SharedModel

    ranks = join()
    if (device, linear) != ("auto", "auto"):
        raise ValueError(
            "tensor_parallel takes no device and no linear: each process has a GPU of its own, and "
            "only layers in the model's dtype are split."
        )
    source = _source(name)
    chosen, why = pick_dtype(pick_device()) if dtype == "auto" else (_dtype(dtype), "as asked for")
    shared = SharedModel.load(ranks, source, chosen)
    return LoadedModel(str(name), shared.own_part, read_tokenizer(source), why, shared)


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
