"""What the engine is compared with: transformers' own generate, one prompt at a time."""

import torch


def greedy_tokens(model, prompt, max_tokens):
    """The tokens that `generate` adds to a list of token ids."""
    with torch.inference_mode():
        output = model.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
            max_new_tokens=max_tokens,
            do_sample=False,
            pad_token_id=0,
        )
    return tuple(output[0, len(prompt) :].tolist())


def ids(*prompts):
    """Prompts of token ids as the engine takes them."""
    return [{"prompt_token_ids": list(prompt)} for prompt in prompts]


def tokens_of(outputs):
    """The first continuation of each prompt."""
    return [output.outputs[0].token_ids for output in outputs]
