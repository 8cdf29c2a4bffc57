"""The course's pictures: each a function that returns a plotly Figure, and one way to show them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmserve_lab.lazy import export

if TYPE_CHECKING:
    from llmserve_lab.plots.arrival_steps import arrival_steps
    from llmserve_lab.plots.attention_map import attention_map
    from llmserve_lab.plots.attention_share import attention_share
    from llmserve_lab.plots.batch_composition import batch_composition
    from llmserve_lab.plots.batch_curve import batch_curve
    from llmserve_lab.plots.belief_shift import belief_shift
    from llmserve_lab.plots.block_map import kv_block_map
    from llmserve_lab.plots.cache_growth import cache_growth
    from llmserve_lab.plots.context_growth import context_growth
    from llmserve_lab.plots.contiguous_map import contiguous_map
    from llmserve_lab.plots.cost_ratios import cost_ratios
    from llmserve_lab.plots.device_timeline import device_timeline
    from llmserve_lab.plots.display import show
    from llmserve_lab.plots.draft_passes import draft_passes
    from llmserve_lab.plots.generate_steps import generate_steps
    from llmserve_lab.plots.goodput_picker import goodput_picker
    from llmserve_lab.plots.gpu_roofs import gpu_roofs
    from llmserve_lab.plots.gpu_tradeoff import gpu_tradeoff
    from llmserve_lab.plots.in_system import in_system
    from llmserve_lab.plots.influence import influence
    from llmserve_lab.plots.latency_split import latency_split
    from llmserve_lab.plots.latency_whatif import latency_whatif
    from llmserve_lab.plots.limit_curves import limit_curves
    from llmserve_lab.plots.limit_goodput import limit_goodput
    from llmserve_lab.plots.memory_bars import memory_bars
    from llmserve_lab.plots.omission import omission
    from llmserve_lab.plots.padding_map import padding_map
    from llmserve_lab.plots.parallel_guesses import parallel_guesses
    from llmserve_lab.plots.percentile_picker import percentile_picker
    from llmserve_lab.plots.prefill_curve import prefill_curve
    from llmserve_lab.plots.promise_picker import promise_picker
    from llmserve_lab.plots.reuse_map import reuse_map
    from llmserve_lab.plots.roofline import roofline
    from llmserve_lab.plots.saturation import saturation
    from llmserve_lab.plots.step_bars import step_times
    from llmserve_lab.plots.step_work import step_work
    from llmserve_lab.plots.timeline import request_timeline
    from llmserve_lab.plots.token_cost import token_cost
    from llmserve_lab.plots.token_gaps import token_gaps
    from llmserve_lab.plots.token_reads import token_reads
    from llmserve_lab.plots.tradeoff import tradeoff_panels
    from llmserve_lab.plots.triangle import whatif_triangle
    from llmserve_lab.plots.user_waits import user_waits

__all__ = [
    "arrival_steps",
    "attention_map",
    "attention_share",
    "batch_composition",
    "batch_curve",
    "belief_shift",
    "cache_growth",
    "context_growth",
    "contiguous_map",
    "cost_ratios",
    "device_timeline",
    "draft_passes",
    "generate_steps",
    "goodput_picker",
    "gpu_roofs",
    "gpu_tradeoff",
    "in_system",
    "influence",
    "kv_block_map",
    "latency_split",
    "latency_whatif",
    "limit_curves",
    "limit_goodput",
    "memory_bars",
    "omission",
    "padding_map",
    "parallel_guesses",
    "percentile_picker",
    "prefill_curve",
    "promise_picker",
    "request_timeline",
    "reuse_map",
    "roofline",
    "saturation",
    "show",
    "step_times",
    "step_work",
    "token_cost",
    "token_gaps",
    "token_reads",
    "tradeoff_panels",
    "user_waits",
    "whatif_triangle",
]

export(
    __name__,
    {
        "arrival_steps": f"{__name__}.arrival_steps",
        "attention_map": f"{__name__}.attention_map",
        "attention_share": f"{__name__}.attention_share",
        "batch_composition": f"{__name__}.batch_composition",
        "batch_curve": f"{__name__}.batch_curve",
        "belief_shift": f"{__name__}.belief_shift",
        "cache_growth": f"{__name__}.cache_growth",
        "context_growth": f"{__name__}.context_growth",
        "contiguous_map": f"{__name__}.contiguous_map",
        "cost_ratios": f"{__name__}.cost_ratios",
        "device_timeline": f"{__name__}.device_timeline",
        "draft_passes": f"{__name__}.draft_passes",
        "generate_steps": f"{__name__}.generate_steps",
        "goodput_picker": f"{__name__}.goodput_picker",
        "gpu_roofs": f"{__name__}.gpu_roofs",
        "gpu_tradeoff": f"{__name__}.gpu_tradeoff",
        "in_system": f"{__name__}.in_system",
        "influence": f"{__name__}.influence",
        "kv_block_map": f"{__name__}.block_map",
        "latency_split": f"{__name__}.latency_split",
        "latency_whatif": f"{__name__}.latency_whatif",
        "limit_curves": f"{__name__}.limit_curves",
        "limit_goodput": f"{__name__}.limit_goodput",
        "memory_bars": f"{__name__}.memory_bars",
        "omission": f"{__name__}.omission",
        "padding_map": f"{__name__}.padding_map",
        "parallel_guesses": f"{__name__}.parallel_guesses",
        "percentile_picker": f"{__name__}.percentile_picker",
        "prefill_curve": f"{__name__}.prefill_curve",
        "promise_picker": f"{__name__}.promise_picker",
        "request_timeline": f"{__name__}.timeline",
        "reuse_map": f"{__name__}.reuse_map",
        "roofline": f"{__name__}.roofline",
        "saturation": f"{__name__}.saturation",
        "show": f"{__name__}.display",
        "step_times": f"{__name__}.step_bars",
        "step_work": f"{__name__}.step_work",
        "token_cost": f"{__name__}.token_cost",
        "token_gaps": f"{__name__}.token_gaps",
        "token_reads": f"{__name__}.token_reads",
        "tradeoff_panels": f"{__name__}.tradeoff",
        "user_waits": f"{__name__}.user_waits",
        "whatif_triangle": f"{__name__}.triangle",
    },
)
