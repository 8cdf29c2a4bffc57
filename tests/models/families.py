"""Tiny random models of each family that the lean decoder knows, and some that it does not."""

import copy

import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

SIZES = {
    "vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 48, "max_position_embeddings": 128,
    "initializer_range": 0.4, "bos_token_id": 0, "eos_token_id": 0,
}  # fmt: skip
KNOWN = {
    "llama": {},
    "llama_biased": {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True},
    "llama_scaled": {"rope_parameters": {
        "rope_type": "llama3", "rope_theta": 1e4, "factor": 4.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 32,
    }},
    "mistral": {"sliding_window": None, "head_dim": 16},
    "mistral_windowed": {"sliding_window": 6},
    "qwen2": {"tie_word_embeddings": True},
    "qwen2_windowed": {"use_sliding_window": True, "sliding_window": 6, "max_window_layers": 1},
    "qwen3": {"head_dim": 16},
}  # fmt: skip


def tiny_model(name, dtype=torch.float32, **settings):
    """A model of the family that `name` begins with. Biases and norms are random too: at their
    initial values, leaving them out would make no difference."""
    config = CONFIG_MAPPING[name.split("_")[0]](**SIZES | KNOWN.get(name, {}) | settings)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config).eval()
        for key, parameter in model.named_parameters():
            if parameter.dim() == 1:
                torch.nn.init.normal_(parameter, 1.0 if "norm" in key else 0.0, 0.3)
    return model.to(dtype)


def copied(model):
    """Another model with the same weights, which no engine has touched."""
    return copy.deepcopy(model)
