"""Requests with lengths as they occur: every function of the held-out files, to be completed."""

from __future__ import annotations

import ast
import random
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from llmserve_lab.models.corpus import held_out_sample


@dataclass(frozen=True, slots=True)
class Completion:
    """A function's prompt, its signature and docstring as token ids, and how many tokens its real
    body has: as many are asked for."""

    name: str
    prompt_token_ids: tuple[int, ...]
    num_output_tokens: int

    @property
    def num_tokens(self) -> int:
        return len(self.prompt_token_ids) + self.num_output_tokens

    @property
    def prompt(self) -> dict[str, list[int]]:
        """As `LLM.generate` takes it."""
        return {"prompt_token_ids": list(self.prompt_token_ids)}

    @property
    def params(self) -> Any:
        """Greedy, and to the full length."""
        from llmserve_lab import SamplingParams

        return SamplingParams(temperature=0, max_tokens=self.num_output_tokens, ignore_eos=True)


def completions(tokenizer: Any, count: int, longest: int, seed: int = 0) -> list[Completion]:
    """`count` different functions, drawn with a seed; none has more than `longest` tokens in all.

    Raises:
        ValueError: there are not so many.
    """
    found = [each for each in all_completions(tokenizer) if each.num_tokens <= longest]
    if not 1 <= count <= len(found):
        raise ValueError(
            f"There are {len(found)} functions of at most {longest} tokens: ask for 1 to that "
            f"many, not {count}."
        )
    return random.Random(seed).sample(found, count)


def all_completions(tokenizer: Any) -> list[Completion]:
    """Every function whose body begins on a line of its own, in the files' order."""
    found = []
    for file in held_out_sample():
        for name, prompt, body in _functions(file.text):
            ids, output = (tokenizer(text, verbose=False)["input_ids"] for text in (prompt, body))
            found.append(Completion(f"{file.name}: {name}", tuple(ids), len(output)))
    return found


def _functions(text: str) -> Iterator[tuple[str, str, str]]:
    """Name, text up to the body, and body."""
    lines = text.splitlines(keepends=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of newer Pythons, about strings in these files
        nodes = list(ast.walk(ast.parse(text)))
    functions = [n for n in nodes if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    for node in sorted(functions, key=lambda node: node.lineno):
        first, last = _first_line(node, lines), node.end_lineno
        if first is not None and first > node.lineno:
            yield (
                node.name,
                "".join(lines[node.lineno - 1 : first - 1]),
                "".join(lines[first - 1 : last]),
            )


def _first_line(node: ast.FunctionDef | ast.AsyncFunctionDef, lines: list[str]) -> int | None:
    """Where the body begins after the docstring, with the comments before its first statement."""
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    if not body:
        return None
    decorators = getattr(body[0], "decorator_list", [])
    first = min([body[0].lineno, *(each.lineno for each in decorators)])
    while lines[first - 2].strip().startswith("#") and first - 1 > node.lineno:
        first -= 1
    return first
