"""The roofline by hand, tensor parallelism, experts, and what does not fit."""

from dataclasses import replace

import pytest

from llmserve_lab.kv_cache import KVShape
from llmserve_lab.simulate import (
    GPUS,
    Constant,
    Deployment,
    Gpu,
    ModelSize,
    Poisson,
    Simulator,
    StepLoad,
    Workload,
    decode_estimate,
)

SEVENTY, H100 = ModelSize.llama3_70b(), GPUS["H100"]
# 100 parameters of 2 bytes, 4 heads of 2 and 2 KV heads in 1 layer: 16 bytes of KV per token.
TINY = ModelSize("tiny", 100, 8, KVShape(1, 2, 2))
# 10 bytes/s, 1000 operations/s, 2 GiB
SLOW = Gpu("slow", 2, 10.0, 1000.0, "a test", link=8.0, host_link=4.0)


def test_each_part_is_bound_by_memory_or_by_arithmetic():
    one = Deployment(TINY, SLOW, overhead=0.5).parts(StepLoad.decode(1, context=10))
    assert one.linear == 200 / 10  # all weights, against 200 operations
    # KV of 10 tokens and the new one's, written; against 2 products of 2 x 8 x 10
    assert one.attention == (160 + 16) / 10
    assert (one.overhead, one.communication) == (0.5, 0.0)
    assert one.seconds == 0.5 + 20 + 17.6
    prompt = Deployment(TINY, SLOW).parts(StepLoad.prefill(1000))
    assert prompt.linear == 2 * 100 * 1000 / 1000  # arithmetic now
    assert prompt.attention == pytest.approx(max(2 * 16 * 1000 / 10, 2 * 2 * 8 * 500_500 / 1000))


def test_shares_slow_the_part_that_they_bound():
    load = StepLoad.decode(1, context=10)
    half = Deployment(TINY, SLOW, bandwidth_share=0.5).seconds(load)
    assert half == 2 * Deployment(TINY, SLOW).seconds(load)
    assert Deployment(TINY, SLOW, flops_share=0.5).seconds(load) == 37.6


def test_a_step_is_no_faster_than_the_floor_by_formula():
    for name in ("T4", "A100", "B200"):
        for batch_size, context in ((1, 128), (64, 4096), (1024, 16)):
            model, gpu = ModelSize.llama3_8b(), GPUS[name]
            gpu = replace(gpu, memory_gib=1000.0)
            floor = decode_estimate(model, gpu, batch_size, context).seconds
            ours = Deployment(model, gpu).seconds(StepLoad.decode(batch_size, context))
            assert floor * (1 - 1e-9) <= ours <= 2 * floor  # each part is bound alone


def test_tensor_parallel_divides_the_work_and_adds_all_reduces():
    load = StepLoad.decode(3, context=10)
    one, two = (Deployment(TINY, SLOW, tp, all_reduce_latency=0.25).parts(load) for tp in (1, 2))
    assert two.linear == one.linear / 2
    assert two.attention == one.attention / 2
    # Two all-reduces per layer of 3 tokens x 8 values x 2 bytes; of each byte half is sent twice.
    assert two.communication == 2 * (48 / 8.0 + 0.25)


def test_a_copy_to_the_host_takes_the_host_link():
    assert Deployment(TINY, SLOW).copy_seconds(10) == 160 / 4.0
    assert Deployment(TINY, SLOW, 2).copy_seconds(10) == 80 / 4.0
    assert Deployment(TINY, SLOW, 4).copy_seconds(10) == 80 / 4.0  # two heads, four GPUs


def test_gpus_beyond_the_kv_heads_hold_copies():
    load, four = StepLoad.decode(1, 10), Deployment(TINY, SLOW, 4)
    assert four.parts(load).attention == Deployment(TINY, SLOW, 2).parts(load).attention
    assert four.num_blocks(1) == int(four.kv_budget / 32)


def test_a_70b_model_on_8_gpus_is_an_ordinary_input():
    eight = Deployment(SEVENTY, H100, tensor_parallel=8)
    result = Simulator(eight).run(Workload.draw(20, Constant(500), Constant(50), Poisson(5.0)))
    assert len(result.finished) == 20
    # Each of 8 GPUs reads an eighth of 141 GB at 3.35 TB/s: TPOT cannot be below 5.3 ms.
    assert result.percentile("tpot", 0) > 70.55e9 * 2 / 8 / 3350e9
    assert result.percentile("tpot", 0) < 3 * 70.55e9 * 2 / 8 / 3350e9
    assert eight.num_blocks(16) == pytest.approx(
        (8 * 72 * 2**30 - 141.1e9) / 327_680 / 16, rel=1e-3
    )


def test_weights_that_do_not_fit_are_refused_in_one_sentence():
    with pytest.raises(ValueError, match=r"70B needs 131\.4 GiB .* 1 x H100 offers 72\.0") as error:
        Deployment(SEVENTY, H100)
    assert "raise tensor_parallel" in str(error.value)
    assert "\n" not in str(error.value)
    assert Deployment(replace(SEVENTY, bytes_per_value=0.5), H100).num_blocks(16) > 0


def test_int4_weights_are_read_in_a_quarter_of_the_time():
    load, int4 = StepLoad.decode(1, 10), replace(TINY, bytes_per_value=0.5, bytes_per_kv=2)
    full, small = Deployment(TINY, SLOW).parts(load), Deployment(int4, SLOW).parts(load)
    assert small.linear == full.linear / 4
    assert small.attention == full.attention


def test_experts_that_no_token_chose_are_not_read():
    mixtral = ModelSize.mixtral_8x7b()
    assert mixtral.active_parameters == 12_879_925_248
    assert mixtral.read_bytes(1) == 2 * mixtral.active_parameters
    assert mixtral.read_bytes(1) < mixtral.read_bytes(4) < mixtral.read_bytes(400)
    assert mixtral.read_bytes(400) == pytest.approx(mixtral.weight_bytes)
    a100 = Deployment(mixtral, GPUS["A100"], 2)
    assert a100.parts(StepLoad.prefill(2048)).linear == pytest.approx(
        2 * 12_879_925_248 * 2048 / 312e12 / 2
    )


def test_the_size_of_a_loaded_model(tiny):
    size = ModelSize.of("tiny", tiny.model)
    assert (size.hidden, size.num_heads, size.kv) == (32, 4, KVShape(2, 2, 8))
    assert size.weight_bytes == 4 * sum(p.numel() for p in tiny.model.parameters())
    assert size.active_parameters == size.parameters
    assert size.output_parameters == 64 * 32
    assert size.idle_parameters == 64 * 32 + (2 * 2 + 1) * 32  # the table, and vectors of norms


@pytest.mark.parametrize("kind", ["Mixtral", "Qwen3Moe"])
def test_the_experts_of_a_loaded_model(kind):
    import transformers

    config = getattr(transformers, f"{kind}Config")(
        vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, intermediate_size=48, moe_intermediate_size=48, head_dim=8,
        num_local_experts=4, num_experts_per_tok=1,
    )  # fmt: skip
    size = ModelSize.of(kind, getattr(transformers, f"{kind}ForCausalLM")(config))
    assert size.expert_parameters == 2 * 4 * 3 * 32 * 48
    assert size.parameters - size.active_parameters == 3 / 4 * size.expert_parameters
    assert (size.num_experts, size.experts_per_token) == (4, 1)


def test_a_published_speed_is_the_share_that_the_docstring_says():
    """gpt-fast: 104.9 tokens/s for Llama-2-7B in 16 bits on one A100, batch 1."""
    assert "104.9 tokens/s, a share of 0.69" in " ".join(Deployment.__doc__.split())
    seven = Deployment(ModelSize.llama2_7b(), GPUS["A100"], bandwidth_share=0.69)
    assert 1 / seven.seconds(StepLoad.decode(1, 100)) == pytest.approx(104.9, rel=0.02)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tensor_parallel": 0}, "tensor_parallel must be at least 1"),
        ({"tensor_parallel": 3}, "4 attention heads, which tensor_parallel=3 does not divide"),
        ({"bandwidth_share": 0.0}, "bandwidth_share must be above 0"),
        ({"flops_share": 1.5}, "flops_share must be a finite number from 0 to 1"),
        ({"overhead": -1.0}, "overhead must be"),
    ],
)
def test_bad_settings_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        Deployment(TINY, SLOW, **settings)


def test_the_table_names_its_sources():
    assert {"T4", "L4", "A10G", "RTX 4090", "A100", "H100", "H200", "B200"} == set(GPUS)
    for gpu in GPUS.values():
        assert "NVIDIA" in gpu.source
        assert 1e9 < gpu.host_link <= gpu.link < gpu.bandwidth < gpu.flops
