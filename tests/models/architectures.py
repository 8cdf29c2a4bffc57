"""Tiny random models of many families, each with the feature of attention that it stands for."""

import torch
import transformers

WINDOW = 5
BASE = {
    "vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 48, "max_position_embeddings": 64,
    "bos_token_id": 0, "eos_token_id": None, "pad_token_id": None,
}  # fmt: skip
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 16}
ALTERNATING = {"sliding_window": WINDOW, "layer_types": ["sliding_attention", "full_attention"]}
GEMMA = ALTERNATING | {
    "head_dim": 16, "query_pre_attn_scalar": 9, "tie_word_embeddings": False,
}  # fmt: skip

# name: (class, settings beside BASE)
FAMILIES = {
    "Llama": ("LlamaForCausalLM", {}),
    "Llama, one KV head, tied": (
        "LlamaForCausalLM",
        {"num_key_value_heads": 1, "tie_word_embeddings": True},
    ),
    "Llama, a KV head each, other head dim": (
        "LlamaForCausalLM",
        {"num_key_value_heads": 4, "head_dim": 20},
    ),
    "Granite, scaling": ("GraniteForCausalLM", {"attention_multiplier": 0.7}),
    "Qwen2": ("Qwen2ForCausalLM", {}),
    "Qwen2, windows in later layers": (
        "Qwen2ForCausalLM",
        {"use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 1},
    ),
    "Qwen3": ("Qwen3ForCausalLM", {"head_dim": 12}),
    "Mistral": ("MistralForCausalLM", {"sliding_window": WINDOW}),
    "Gemma 2": (
        "Gemma2ForCausalLM",
        GEMMA | {"attn_logit_softcapping": 2.0, "attn_implementation": "eager"},  # sdpa had no cap
    ),
    "Gemma 3": (
        "Gemma3ForCausalLM",
        GEMMA,
    ),
    "GPT-2": ("GPT2LMHeadModel", {}),
    "OLMo": ("OlmoForCausalLM", {}),
    "OLMo 2": ("Olmo2ForCausalLM", {}),
    "Phi": ("PhiForCausalLM", {}),
    "Phi-3": ("Phi3ForCausalLM", {"sliding_window": WINDOW}),
    "GPT-NeoX": ("GPTNeoXForCausalLM", {}),
    "GPT-BigCode, one KV head": ("GPTBigCodeForCausalLM", {"num_key_value_heads": 1}),
    "StableLM": ("StableLmForCausalLM", {}),
    "OPT": ("OPTForCausalLM", {"ffn_dim": 48, "word_embed_proj_dim": 32}),
    "Mixtral": ("MixtralForCausalLM", {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "Qwen2-MoE": (
        "Qwen2MoeForCausalLM",
        EXPERTS | {"num_experts": 4, "shared_expert_intermediate_size": 16},
    ),
    "Qwen3-MoE": ("Qwen3MoeForCausalLM", EXPERTS | {"num_experts": 4, "head_dim": 8}),
    "gpt-oss": (
        "GptOssForCausalLM",
        EXPERTS | ALTERNATING | {"num_local_experts": 4, "head_dim": 8},
    ),
}


def make(name, dtype=torch.float32):
    """A model of a family whose greedy text varies. Matrices are drawn widely, so that attention
    decides which token comes."""
    class_name, settings = FAMILIES[name]
    return random_model(class_name, dtype, **settings)


def random_model(class_name, dtype=torch.float32, **settings):
    model_class = getattr(transformers, class_name)
    known = model_class.config_class()
    base = {key: value for key, value in BASE.items() if hasattr(known, key)}
    config = model_class.config_class(**(base | settings))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = model_class(config)
        for parameter in model.parameters():
            if parameter.dim() > 1:
                torch.nn.init.normal_(parameter, std=0.3)
            else:  # biases, norms and sinks, which at their initial values make no difference
                parameter.data += 0.2 * torch.randn_like(parameter)
    return model.to(dtype).eval()
