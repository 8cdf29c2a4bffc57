"""Do the attention backends for GPUs compute what the reference computes, and how near do they come
to this GPU's memory bandwidth?

    python -m benchmarks.gpu_check [--json FILE]     on a CUDA GPU
    python -m benchmarks.gpu_check --interpret       the Triton kernels on a CPU, without times

Every backend that works in a case is compared with the reference in float32, over a cache whose
unwritten slots are NaN. Then the bundled model's greedy tokens are compared. The exit code is 1
where something differs by more than rounding, or nothing was checked.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from benchmarks import tensor_parallel
from llmserve_lab import LLM, SamplingParams, load, measure_peak
from llmserve_lab.attention import BatchMetadata, Segment, reference
from llmserve_lab.attention.backend import INTERPRETER, Case, working
from llmserve_lab.kv_cache import KVShape, PagedKVCache

LIMITS = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}  # of outputs around 1
WARM_UP, RUNS = 3, 20
MS, GB = 1e3, 1e9


@dataclass(frozen=True)
class Shape:
    """segments: (tokens in the past, new ones) each. heads: query heads and KV heads. options: of
    the attention. timed: whether it reads enough for its time to say something."""

    name: str
    segments: list[tuple[int, int]]
    heads: tuple[int, int] = (8, 2)
    dim: int = 64
    block_size: int = 16
    options: dict[str, Any] = field(default_factory=dict)
    timed: bool = False


SMALL = [
    Shape("decode", [(40, 1), (0, 1), (300, 1)]),
    Shape("decode, odd blocks", [(40, 1), (7, 1)], (6, 6), 32, 3),
    Shape("prefill", [(0, 33), (20, 9)], (4, 1), 32),
    Shape("mixed, windowed", [(90, 1), (10, 20)], options={"window": 24}),
    Shape("mixed, soft cap", [(90, 1), (10, 20)], options={"softcap": 20.0}),
]
LARGE = [
    *SMALL,
    Shape("mixed", [(4000, 1), (100, 400), (0, 1), (513, 3)], (14, 2), 128),
    Shape("mixed, large blocks", [(4000, 1), (100, 400), (0, 1), (513, 3)], (32, 8), 128, 256),
    Shape("decode, wide heads", [(999, 1)] * 8, (8, 4), 256),
    *(
        Shape(f"decode, {n} x {length}", [(length - 1, 1)] * n, (32, 8), 128, size, timed=True)
        for size in (16, 256)
        for n, length in [(1, 65536), (8, 16384), (64, 4096)]
    ),
]


class Problem:
    """One shape with random keys, values and queries, its blocks scattered over the pool."""

    def __init__(self, shape: Shape, dtype: torch.dtype, device: torch.device) -> None:
        self.shape, self.dtype, self.device = shape, dtype, device
        self.random = torch.Generator(device).manual_seed(0)
        counts = [-(-(past + new) // shape.block_size) for past, new in shape.segments]
        self.num_blocks = sum(counts) + 1
        order = iter(torch.randperm(self.num_blocks, generator=torch.Generator()).tolist())
        self.segments, row = [], 0
        for (past, new), count in zip(shape.segments, counts, strict=True):
            self.segments.append(Segment(row, past, new, [next(order) for _ in range(count)]))
            row += new
        self.pools = [self._pool(), self._pool()]
        heads = (shape.heads[0], shape.heads[1], shape.heads[1])
        self.tensors = [self._draw(row, count, shape.dim) for count in heads]

    def _draw(self, *size: int) -> torch.Tensor:
        return torch.randn(size, generator=self.random, device=self.device).to(self.dtype)

    def _pool(self) -> torch.Tensor:
        """Slots that hold the past; every other one is NaN."""
        size, heads, dim = self.shape.block_size, self.shape.heads[1], self.shape.dim
        pool = self._draw((self.num_blocks + 1) * size, heads, dim)
        written = torch.zeros(len(pool), dtype=torch.bool, device=self.device)
        for segment in self.segments:
            table = torch.tensor(segment.block_table, device=self.device)
            places = torch.arange(segment.start, device=self.device)
            written[table[places // size] * size + places % size] = True
        return pool.masked_fill_(~written[:, None, None], float("nan"))

    def ready(self, dtype: torch.dtype) -> Callable[[Any], torch.Tensor]:
        """Runs a backend's function on this problem, its values in another dtype."""
        shape = self.shape
        size = (KVShape(1, shape.heads[1], shape.dim), self.num_blocks, shape.block_size)
        cache = PagedKVCache(*size, dtype, self.device)
        for own, pool in zip((cache.keys[0], cache.values[0]), self.pools, strict=True):
            own[: cache.null_slot] = pool[: cache.null_slot]
        batch = BatchMetadata(cache, self.segments, self.device)
        tensors = [tensor.to(dtype) for tensor in self.tensors]
        scaling = shape.dim**-0.5
        return lambda attention: attention(0, *tensors, batch, scaling, **shape.options)

    @property
    def bytes_read(self) -> int:
        """Keys and values of every context, once."""
        context = sum(segment.context for segment in self.segments)
        return 2 * context * self.shape.heads[1] * self.shape.dim * self.dtype.itemsize


@dataclass(frozen=True)
class Result:
    """error: the largest difference from float32; own: that of the reference in the same dtype.
    share: of the bandwidth that a matrix-vector product reaches, for timed shapes."""

    backend: str
    shape: str
    dtype: str
    error: float
    own: float
    ok: bool
    ms: float | None = None
    share: float | None = None

    def line(self) -> str:
        times = "" if self.ms is None else f"{self.ms:10.3f} ms{self.share:8.1%}"
        sign = "ok" if self.ok else "WRONG"
        start = f"{self.backend:10}{self.shape:24}{self.dtype:10}"
        return f"{start}{self.error:10.1e}{self.own:10.1e}  {sign:6}{times}"


def check(shapes: list[Shape], device: torch.device, bandwidth: float | None) -> Iterator[Result]:
    """Every backend on every shape and dtype in which it works. bandwidth: bytes/s of the GPU."""
    for shape in shapes:
        for dtype in LIMITS:
            needs = frozenset(shape.options)
            case = Case(device, dtype, False, needs, shape.block_size, shape.dim)
            names = [name for name in working(case) if name in ("triton", "flash")]
            if names:
                yield from compare(Problem(shape, dtype, device), names, bandwidth)


def compare(problem: Problem, names: list[str], bandwidth: float | None) -> Iterator[Result]:
    wanted = problem.ready(torch.float32)(reference.paged_attention)
    run = problem.ready(problem.dtype)
    own = largest(run(reference.paged_attention), wanted)
    for name in names:
        attention = import_module(f"llmserve_lab.attention.{name}").paged_attention
        error = largest(run(attention), wanted)
        ok = error <= LIMITS[problem.dtype]
        ms = share = None
        if bandwidth and problem.shape.timed:
            spent = seconds(lambda attention=attention: run(attention))
            ms, share = spent * MS, problem.bytes_read / spent / bandwidth
        dtype = str(problem.dtype).removeprefix("torch.")
        yield Result(name, problem.shape.name, dtype, error, own, ok, ms, share)


def largest(found: torch.Tensor, wanted: torch.Tensor) -> float:
    """The largest difference; infinite where something is no number."""
    return (found.float() - wanted).abs().nan_to_num(nan=float("inf")).max().item()


def seconds(run: Callable[[], Any]) -> float:
    """Of one call, by the GPU's own clock over several."""
    for _ in range(WARM_UP):
        run()
    began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    began.record()
    for _ in range(RUNS):
        run()
    ended.record()
    torch.cuda.synchronize()
    return began.elapsed_time(ended) / MS / RUNS


def engine_check(device: torch.device, names: list[str], max_tokens: int) -> Iterator[Result]:
    """Greedy tokens of the bundled model in float32, of which none may differ from those with the
    reference. error: the share that does. On a GPU also with decode steps captured as graphs, with
    tokens read late, compiled, and with all of it; on several, split between two."""
    params = SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True)
    model = load("lab-target", dtype="float32", device=str(device))

    def tokens(**settings: Any) -> list[int]:
        limits = {"num_blocks": 32, "max_num_batched_tokens": 8, "max_num_seqs": 4}
        outputs = LLM(model, **limits, **settings).generate(tensor_parallel.PROMPTS, params)
        return [t for out in outputs for t in out.outputs[0].token_ids]

    wanted = tokens(attention_backend="reference")
    kinds: dict[str, dict[str, Any]] = {name: {"attention_backend": name} for name in names}
    if device.type == "cuda":
        kinds["graphs"] = graphs = {"attention_backend": "triton", "cuda_graphs": True}
        kinds |= {"async": {"async_scheduling": True}, "compiled": {"compile": True}}
        kinds["all"] = graphs | kinds["async"] | kinds["compiled"]
    for name, kind in kinds.items():
        pairs = zip(tokens(**kind), wanted, strict=True)
        share = sum(a != b for a, b in pairs) / len(wanted)
        yield Result(name, f"lab-target, {len(wanted)} tokens", "float32", share, 0.0, share == 0)
    if torch.cuda.device_count() > 1:
        found = tensor_parallel.compare()
        share, shape = found["different"], f"lab-target, {found['tokens']} tokens"
        yield Result("2 GPUs", shape, "float32", share, 0.0, share == 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--interpret", action="store_true", help="Triton's interpreter, on a CPU")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    asked = parser.parse_args()
    if asked.interpret:
        os.environ[INTERPRETER] = "1"  # read when the kernels are imported, which is later
    elif not torch.cuda.is_available():
        print(
            "There is no CUDA GPU here, so nothing was checked; --interpret runs the Triton "
            "kernels on the CPU."
        )
        return 1
    device, bandwidth, where = torch.device("cpu"), None, "Triton's interpreter"
    if not asked.interpret:
        device, bandwidth = torch.device("cuda"), measure_peak().bytes_per_second
        where = f"{torch.cuda.get_device_name()}, {bandwidth / GB:.0f} GB/s measured"
    print(f"{where}; torch {torch.__version__}")
    print(f"{'backend':10}{'shape':24}{'dtype':10}{'error':>10}{'reference':>10}")
    results = []
    with torch.inference_mode():
        shapes, count = (SMALL, 3) if asked.interpret else (LARGE, 32)
        names = [name for name in working(Case(device, torch.float32)) if name == "triton"]
        for checks in (check(shapes, device, bandwidth), engine_check(device, names, count)):
            for result in checks:
                print(result.line(), flush=True)
                results.append(result)
    if asked.json:
        rows = [asdict(result) for result in results]
        asked.json.write_text(json.dumps({"machine": where, "results": rows}, indent=1))
    return 0 if results and all(result.ok for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
