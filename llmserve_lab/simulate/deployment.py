"""A model on GPUs, and how long its steps take: the roofline, part by part (Williams et al. 2009),
with tensor parallelism as in Megatron-LM (Shoeybi et al. 2019, section 3)."""

from __future__ import annotations

from dataclasses import dataclass

from llmserve_lab.engine.checks import require_count, require_number
from llmserve_lab.engine.step_load import StepLoad
from llmserve_lab.simulate.gpus import Gpu
from llmserve_lab.simulate.model_size import BYTES_16_BIT, ModelSize

GIB = 2**30
ALL_REDUCES_PER_LAYER = 2  # after attention and after the MLP
LARGEST_OVERHEAD = 10.0  # seconds


@dataclass(frozen=True, slots=True)
class StepTime:
    """Seconds of one step, by part. Each part is bound by memory or by arithmetic, alone."""

    overhead: float
    linear: float
    attention: float
    communication: float

    @property
    def seconds(self) -> float:
        return self.overhead + self.linear + self.attention + self.communication


@dataclass(frozen=True, slots=True)
class Deployment:
    """`model` on `tensor_parallel` GPUs of one kind.

    bandwidth_share, flops_share: what is reached of the data sheet; 1.0 gives a floor. (A published
    measurement: gpt-fast decodes Llama-2-7B on an A100 at 104.9 tokens/s, a share of 0.69.)
    overhead: seconds per step beside the GPU's work. memory_share: what weights and KV may take.
    all_reduce_latency: seconds before an all-reduce moves its first byte; an assumption,
    measurements go from 4 to 20 microseconds.

    Raises:
        ValueError, TypeError: the weights do not fit, heads that cannot be divided, or a setting
            that makes no sense.
    """

    model: ModelSize
    gpu: Gpu
    tensor_parallel: int = 1
    bandwidth_share: float = 1.0
    flops_share: float = 1.0
    overhead: float = 0.0
    memory_share: float = 0.9
    all_reduce_latency: float = 10e-6

    def __post_init__(self) -> None:
        require_count("tensor_parallel", self.tensor_parallel, at_least=1)
        for name in ("bandwidth_share", "flops_share", "memory_share"):
            require_number(name, getattr(self, name), 0.0, 1.0)
            if getattr(self, name) == 0:
                raise ValueError(f"{name} must be above 0.")
        for name in ("overhead", "all_reduce_latency"):
            require_number(name, getattr(self, name), 0.0, LARGEST_OVERHEAD)
        if self.model.num_heads % self.tensor_parallel:
            raise ValueError(
                f"{self.model.name} has {self.model.num_heads} attention heads, which "
                f"tensor_parallel={self.tensor_parallel} does not divide."
            )
        self._require_room()

    @property
    def kv_budget(self) -> float:
        """Bytes for KV over all GPUs: what the weights leave."""
        return self._memory_per_gpu * self.tensor_parallel - self.model.weight_bytes

    def num_blocks(self, block_size: int) -> int:
        """KV blocks of `block_size` tokens that fit beside the weights."""
        return int(self.kv_budget // (self.model.kv_bytes(block_size) * self._kv_copies))

    def seconds(self, load: StepLoad) -> float:
        """How long a step takes."""
        return self.parts(load).seconds

    def copy_seconds(self, num_tokens: int) -> float:
        """How long the KV of so many tokens takes to host memory, or back; each GPU copies its own
        part over its own link."""
        num_bytes = self.model.kv_bytes(num_tokens) * self._kv_copies / self.tensor_parallel
        return num_bytes / self.gpu.host_link

    def parts(self, load: StepLoad) -> StepTime:
        """How long each part of a step takes."""
        work, tokens, samples = self.model.work, load.tokens, load.samples
        products = work.linear_flops(tokens, samples)
        kv_bytes = work.kv_moved(load) * self._kv_copies
        return StepTime(
            overhead=self.overhead,
            linear=self._roofline(work.weights_read(tokens, samples), products),
            attention=self._roofline(kv_bytes, work.attention_flops(load.pairs)),
            communication=self._communication(tokens),
        )

    def _roofline(self, num_bytes: float, operations: float) -> float:
        reading = num_bytes / (self.gpu.bandwidth * self.bandwidth_share)
        computing = operations / (self.gpu.flops * self.flops_share)
        return max(reading, computing) / self.tensor_parallel

    def _communication(self, num_tokens: int) -> float:
        """Ring all-reduces of 16-bit activations: each GPU sends 2 (n - 1) / n of them."""
        gpus = self.tensor_parallel
        if gpus == 1:
            return 0.0
        sent = 2 * (gpus - 1) / gpus * num_tokens * self.model.hidden * BYTES_16_BIT
        count = ALL_REDUCES_PER_LAYER * self.model.kv.num_layers
        return count * (sent / self.gpu.link + self.all_reduce_latency)

    @property
    def _memory_per_gpu(self) -> float:
        return self.gpu.memory_gib * GIB * self.memory_share

    @property
    def _kv_copies(self) -> float:
        """More GPUs than KV heads: some GPUs hold the same heads."""
        return max(1.0, self.tensor_parallel / self.model.kv.num_kv_heads)

    def _require_room(self) -> None:
        if self.num_blocks(block_size=1) >= 1:
            return
        gpus, needed = self.tensor_parallel, self.model.weight_bytes / GIB
        raise ValueError(
            f"{self.model.name} needs {needed:.1f} GiB for its weights and {gpus} x "
            f"{self.gpu.name} offers {gpus * self._memory_per_gpu / GIB:.1f} GiB "
            f"({self.memory_share:.0%} of {gpus * self.gpu.memory_gib:g}); raise tensor_parallel, "
            "take a larger GPU, or lower bytes_per_value."
        )
