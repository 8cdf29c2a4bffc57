"""The course's pictures: each a function that returns a plotly Figure, and one way to show them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmserve_lab.lazy import export

if TYPE_CHECKING:
    from llmserve_lab.plots.address_map import address_map
    from llmserve_lab.plots.arrival_steps import arrival_steps
    from llmserve_lab.plots.attention_map import attention_map
    from llmserve_lab.plots.attention_share import attention_share
    from llmserve_lab.plots.batch_composition import batch_composition
    from llmserve_lab.plots.batch_curve import batch_curve
    from llmserve_lab.plots.batch_lines import batch_lines
    from llmserve_lab.plots.belief_shift import belief_shift
    from llmserve_lab.plots.block_map import kv_block_map
    from llmserve_lab.plots.block_sizes import block_sizes
    from llmserve_lab.plots.cache_growth import cache_growth
    from llmserve_lab.plots.context_growth import context_growth
    from llmserve_lab.plots.contiguous_map import contiguous_map
    from llmserve_lab.plots.cost_ratios import cost_ratios
    from llmserve_lab.plots.device_timeline import device_timeline
    from llmserve_lab.plots.display import show
    from llmserve_lab.plots.draft_gain import draft_gain
    from llmserve_lab.plots.draft_passes import draft_passes
    from llmserve_lab.plots.draft_speedup import draft_speedup
    from llmserve_lab.plots.first_waits import first_waits
    from llmserve_lab.plots.generate_steps import generate_steps
    from llmserve_lab.plots.goodput_picker import goodput_picker
    from llmserve_lab.plots.gpu_roofs import gpu_roofs
    from llmserve_lab.plots.gpu_tradeoff import gpu_tradeoff
    from llmserve_lab.plots.in_system import in_system
    from llmserve_lab.plots.influence import influence
    from llmserve_lab.plots.keeping_up import keeping_up
    from llmserve_lab.plots.latency_split import latency_split
    from llmserve_lab.plots.latency_whatif import latency_whatif
    from llmserve_lab.plots.layer_distance import layer_distance
    from llmserve_lab.plots.length_growth import length_growth
    from llmserve_lab.plots.limit_curves import limit_curves
    from llmserve_lab.plots.limit_goodput import limit_goodput
    from llmserve_lab.plots.memory_bars import memory_bars
    from llmserve_lab.plots.omission import omission
    from llmserve_lab.plots.padding_map import padding_map
    from llmserve_lab.plots.paging_effects import paging_effects
    from llmserve_lab.plots.parallel_guesses import parallel_guesses
    from llmserve_lab.plots.percentile_picker import percentile_picker
    from llmserve_lab.plots.prefill_curve import prefill_curve
    from llmserve_lab.plots.prefix_chain import prefix_chain
    from llmserve_lab.plots.promise_picker import promise_picker
    from llmserve_lab.plots.reservation_fill import reservation_fill
    from llmserve_lab.plots.reuse_map import reuse_map
    from llmserve_lab.plots.reuse_waits import reuse_waits
    from llmserve_lab.plots.roofline import roofline
    from llmserve_lab.plots.saturation import saturation
    from llmserve_lab.plots.schedule_gantt import schedule_gantt
    from llmserve_lab.plots.serving_flow import serving_flow
    from llmserve_lab.plots.slot_use_areas import slot_use_areas
    from llmserve_lab.plots.spread_gain import spread_gain
    from llmserve_lab.plots.step_bars import step_times
    from llmserve_lab.plots.step_work import step_work
    from llmserve_lab.plots.strategy_effects import strategy_effects
    from llmserve_lab.plots.timeline import request_timeline
    from llmserve_lab.plots.token_cost import token_cost
    from llmserve_lab.plots.token_gaps import token_gaps
    from llmserve_lab.plots.token_reads import token_reads
    from llmserve_lab.plots.tradeoff import tradeoff_panels
    from llmserve_lab.plots.triangle import whatif_triangle
    from llmserve_lab.plots.user_waits import user_waits

__all__ = [
    "address_map",
    "arrival_steps",
    "attention_map",
    "attention_share",
    "batch_composition",
    "batch_curve",
    "batch_lines",
    "belief_shift",
    "block_sizes",
    "cache_growth",
    "context_growth",
    "contiguous_map",
    "cost_ratios",
    "device_timeline",
    "draft_gain",
    "draft_passes",
    "draft_speedup",
    "first_waits",
    "generate_steps",
    "goodput_picker",
    "gpu_roofs",
    "gpu_tradeoff",
    "in_system",
    "influence",
    "keeping_up",
    "kv_block_map",
    "latency_split",
    "latency_whatif",
    "layer_distance",
    "length_growth",
    "limit_curves",
    "limit_goodput",
    "memory_bars",
    "omission",
    "padding_map",
    "paging_effects",
    "parallel_guesses",
    "percentile_picker",
    "prefill_curve",
    "prefix_chain",
    "promise_picker",
    "request_timeline",
    "reservation_fill",
    "reuse_map",
    "reuse_waits",
    "roofline",
    "saturation",
    "schedule_gantt",
    "serving_flow",
    "show",
    "slot_use_areas",
    "spread_gain",
    "step_times",
    "step_work",
    "strategy_effects",
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
        "address_map": f"{__name__}.address_map",
        "arrival_steps": f"{__name__}.arrival_steps",
        "attention_map": f"{__name__}.attention_map",
        "attention_share": f"{__name__}.attention_share",
        "batch_composition": f"{__name__}.batch_composition",
        "batch_curve": f"{__name__}.batch_curve",
        "batch_lines": f"{__name__}.batch_lines",
        "belief_shift": f"{__name__}.belief_shift",
        "block_sizes": f"{__name__}.block_sizes",
        "cache_growth": f"{__name__}.cache_growth",
        "context_growth": f"{__name__}.context_growth",
        "contiguous_map": f"{__name__}.contiguous_map",
        "cost_ratios": f"{__name__}.cost_ratios",
        "device_timeline": f"{__name__}.device_timeline",
        "draft_gain": f"{__name__}.draft_gain",
        "draft_passes": f"{__name__}.draft_passes",
        "draft_speedup": f"{__name__}.draft_speedup",
        "first_waits": f"{__name__}.first_waits",
        "generate_steps": f"{__name__}.generate_steps",
        "goodput_picker": f"{__name__}.goodput_picker",
        "gpu_roofs": f"{__name__}.gpu_roofs",
        "gpu_tradeoff": f"{__name__}.gpu_tradeoff",
        "in_system": f"{__name__}.in_system",
        "influence": f"{__name__}.influence",
        "keeping_up": f"{__name__}.keeping_up",
        "kv_block_map": f"{__name__}.block_map",
        "latency_split": f"{__name__}.latency_split",
        "latency_whatif": f"{__name__}.latency_whatif",
        "layer_distance": f"{__name__}.layer_distance",
        "length_growth": f"{__name__}.length_growth",
        "limit_curves": f"{__name__}.limit_curves",
        "limit_goodput": f"{__name__}.limit_goodput",
        "memory_bars": f"{__name__}.memory_bars",
        "omission": f"{__name__}.omission",
        "padding_map": f"{__name__}.padding_map",
        "paging_effects": f"{__name__}.paging_effects",
        "parallel_guesses": f"{__name__}.parallel_guesses",
        "percentile_picker": f"{__name__}.percentile_picker",
        "prefill_curve": f"{__name__}.prefill_curve",
        "prefix_chain": f"{__name__}.prefix_chain",
        "promise_picker": f"{__name__}.promise_picker",
        "request_timeline": f"{__name__}.timeline",
        "reservation_fill": f"{__name__}.reservation_fill",
        "reuse_map": f"{__name__}.reuse_map",
        "reuse_waits": f"{__name__}.reuse_waits",
        "roofline": f"{__name__}.roofline",
        "saturation": f"{__name__}.saturation",
        "schedule_gantt": f"{__name__}.schedule_gantt",
        "serving_flow": f"{__name__}.serving_flow",
        "show": f"{__name__}.display",
        "slot_use_areas": f"{__name__}.slot_use_areas",
        "spread_gain": f"{__name__}.spread_gain",
        "step_times": f"{__name__}.step_bars",
        "step_work": f"{__name__}.step_work",
        "strategy_effects": f"{__name__}.strategy_effects",
        "token_cost": f"{__name__}.token_cost",
        "token_gaps": f"{__name__}.token_gaps",
        "token_reads": f"{__name__}.token_reads",
        "tradeoff_panels": f"{__name__}.tradeoff",
        "user_waits": f"{__name__}.user_waits",
        "whatif_triangle": f"{__name__}.triangle",
    },
)
