"""Prompts as the caller gives them, turned into token ids or refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llmserve_lab.engine.checks import require_count
from llmserve_lab.engine.sampling_params import SamplingParams


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt's text, where it had one, and its token ids. Only prompts with the same salt share
    cached prefixes."""

    text: str | None
    token_ids: list[int]
    cache_salt: str = ""


def as_list(prompts: Any) -> list[Any]:
    """One prompt or several, as a list."""
    return [prompts] if isinstance(prompts, (str, dict)) else _listed("prompts", prompts)


def _listed(name: str, values: Any) -> list[Any]:
    try:
        return list(values)
    except TypeError:
        raise TypeError(f"{name} must be one or a list, not {values!r:.60}.") from None


def read_prompt(prompt: Any, tokenizer: Any, vocabulary: int, longest: int) -> Prompt:
    """Tokenize and check one prompt: a string, {"prompt": "..."} or {"prompt_token_ids": [...]},
    the dicts with a "cache_salt" if they are to share cached prefixes only with its like.

    Raises:
        TypeError: another kind of object.
        ValueError: empty, longer than `longest` tokens, or ids outside the vocabulary.
    """
    asked = {"prompt": prompt} if isinstance(prompt, str) else prompt
    if isinstance(asked, dict) and "prompt_token_ids" in asked:
        ids = _checked_ids(asked["prompt_token_ids"], vocabulary)
        read = Prompt(asked.get("prompt"), ids, _salt(asked))
    elif isinstance(asked, dict) and isinstance(asked.get("prompt"), str):
        text = asked["prompt"]
        read = Prompt(text, _tokenized(text, tokenizer, vocabulary), _salt(asked))
    else:
        raise TypeError(
            'A prompt is a string, {"prompt": "..."} or {"prompt_token_ids": [...]}, '
            f"not {type(prompt).__name__}: {prompt!r:.60}"
        )
    if not read.token_ids:
        raise ValueError("The prompt is empty: it must hold at least one token.")
    if len(read.token_ids) > longest:
        raise ValueError(
            f"The prompt has {len(read.token_ids)} tokens; at most {longest} fit, "
            "with room for one more. Shorten it or raise max_model_len."
        )
    return read


def _salt(prompt: dict[str, Any]) -> str:
    salt = prompt.get("cache_salt", "")
    if not isinstance(salt, str) or ("cache_salt" in prompt and not salt):
        raise TypeError(f"cache_salt must be a string that is not empty, not {salt!r:.60}.")
    return salt


def _tokenized(text: str, tokenizer: Any, vocabulary: int) -> list[int]:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"The prompt is not valid Unicode text: {error}.") from None
    return _checked_ids(tokenizer(text)["input_ids"], vocabulary)


def _checked_ids(ids: Any, vocabulary: int) -> list[int]:
    checked = [] if ids is None else _listed("prompt_token_ids", ids)
    for token in checked:
        require_count("A token id", token, at_least=0, at_most=vocabulary - 1)
    return [int(token) for token in checked]


def check_params(params: SamplingParams, vocabulary: int, eos_token_ids: frozenset[int]) -> None:
    """Raise if settings name tokens that the model could not produce, or leave it none."""
    for name in ("stop_token_ids", "allowed_token_ids", "logit_bias"):
        for token in getattr(params, name) or ():
            require_count(f"A token id of {name}", token, at_least=0, at_most=vocabulary - 1)
    for name in ("logprobs", "prompt_logprobs"):
        require_count(name, getattr(params, name) or 0, at_least=-1, at_most=vocabulary)
    params.require_a_choice(eos_token_ids.union(params.stop_token_ids or ()))


def params_per_prompt(params: Any, count: int) -> list[SamplingParams]:
    """One SamplingParams for all prompts, or one for each."""
    if params is None or isinstance(params, SamplingParams):
        return [params or SamplingParams()] * count
    listed = _listed("params", params)
    if len(listed) != count:
        raise ValueError(f"{count} prompts came with {len(listed)} SamplingParams; give one each.")
    for item in listed:
        if not isinstance(item, SamplingParams):
            raise TypeError(f"params must be SamplingParams, not {type(item).__name__}.")
    return listed
