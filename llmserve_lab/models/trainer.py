"""The training loop: Muon for the matrices (Jordan 2024), AdamW for embeddings and norms."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from pathlib import Path
from typing import Any

from llmserve_lab.models.recipe import Recipe

CHECKPOINT_SECONDS = 120
CURVE_EVERY = 50  # steps between two points of the loss curve
SMALLEST_SHARE = 1e-3  # of the run: the first steps still need a learning rate above zero
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # glibc's mallopt
TRIM_NEVER = 2**31 - 1


class Trainer:
    """Trains one model for a given wall time.

    tokens: (number of tokens,) int64, the corpus as one stream.
    teacher: a model whose distribution the loss follows, or None for the corpus alone.
    """

    def __init__(
        self, recipe: Recipe, tokens: Any, teacher: Any = None, use_compile: bool = False
    ) -> None:
        import numpy
        import torch
        from transformers import LlamaForCausalLM

        longest = max(length for _, length in recipe.lengths)
        if len(tokens) <= 2 * longest:
            raise ValueError(
                f"The corpus has {len(tokens)} tokens: more than {2 * longest} are needed."
            )
        keep_freed_memory()
        torch.manual_seed(recipe.seed)
        self.recipe, self.tokens, self.teacher = recipe, tokens, teacher
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        model: Any = LlamaForCausalLM(recipe.config())
        self.model = model.to(self.device)
        self.optimizers = self._optimizers()
        self.random = numpy.random.default_rng(recipe.seed)
        self.starts: list[int] = []
        self.step, self.elapsed, self.tokens_seen = 0, 0.0, 0
        self.curve: list[tuple[int, float]] = []
        self._loss = self._plain_loss
        if use_compile:
            self._loss = torch.compile(self._plain_loss, dynamic=False)

    def _optimizers(self) -> list[Any]:
        import torch

        hidden = [p for n, p in self.model.named_parameters() if p.ndim == 2 and "layers" in n]
        chosen = {id(p) for p in hidden}
        others = [p for p in self.model.parameters() if id(p) not in chosen]
        rate, decay = self.recipe.learning_rate, self.recipe.weight_decay
        return [
            torch.optim.Muon(hidden, lr=rate, weight_decay=decay, adjust_lr_fn="match_rms_adamw"),
            torch.optim.AdamW(others, lr=rate, weight_decay=0.0, betas=(0.9, 0.95), fused=True),
        ]

    def run(self, seconds: float, checkpoint: Path) -> None:
        """Train until `seconds` of training are done in all, earlier runs' included."""
        from tqdm import tqdm

        bar = tqdm(total=round(seconds), initial=round(self.elapsed), desc=self.recipe.name)
        saved = self.elapsed
        self.model.train()
        while self.elapsed < seconds:
            began = time.perf_counter()
            loss = self._one_step(max(SMALLEST_SHARE, self.elapsed / seconds))
            self.elapsed += time.perf_counter() - began
            if self.step % CURVE_EVERY == 0:
                self.curve.append((self.tokens_seen, round(loss, 4)))
                bar.set_postfix_str(f"loss {loss:.3f}, {self.tokens_seen / 1e6:.1f}M tokens")
            bar.update(round(self.elapsed) - bar.n)
            if self.elapsed - saved > CHECKPOINT_SECONDS:
                self.checkpoint(checkpoint)
                saved = self.elapsed
        bar.close()
        self.checkpoint(checkpoint)
        self.model.eval()

    def _one_step(self, share: float) -> float:
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = self.recipe.rate_at(share)
        batch = self._batch(self.recipe.length_at(share))
        loss = self._loss(batch)
        loss.backward()
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad()
        self.step += 1
        self.tokens_seen += batch.numel()
        return loss.item()

    def _batch(self, length: int) -> Any:
        """(sequences, length + 1) token ids; each window of an epoch is used once."""
        import numpy
        import torch

        count = max(1, self.recipe.batch_tokens // length)
        self.starts = [start for start in self.starts if start + length < len(self.tokens)]
        while len(self.starts) < count:
            first = int(self.random.integers(length))
            starts = numpy.arange(first, len(self.tokens) - length, length)
            self.starts += self.random.permutation(starts).tolist()
        chosen, self.starts = self.starts[:count], self.starts[count:]
        rows = [self.tokens[s : s + length + 1] for s in chosen]
        return torch.from_numpy(numpy.stack(rows)).to(self.device)

    def _plain_loss(self, batch: Any) -> Any:
        import torch

        inputs, labels = batch[:, :-1], batch[:, 1:]
        with torch.autocast(self.device.type, dtype=torch.bfloat16):
            logits = self.model(input_ids=inputs, use_cache=False).logits
        logits = logits.float().flatten(0, 1)
        if self.teacher is None:
            return torch.nn.functional.cross_entropy(logits, labels.flatten())
        with torch.no_grad(), torch.autocast(self.device.type, dtype=torch.bfloat16):
            wanted = self.teacher(input_ids=inputs, use_cache=False).logits
        wanted = wanted.float().flatten(0, 1).softmax(-1)
        return torch.nn.functional.cross_entropy(logits, wanted)

    def checkpoint(self, path: Path) -> None:
        """Write everything needed to go on; the old file stays whole until the new one is."""
        import torch

        path.parent.mkdir(parents=True, exist_ok=True)
        state = {
            "model": self.model.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "counters": (self.step, self.elapsed, self.tokens_seen),
            "curve": self.curve,
        }
        torch.save(state, path.with_suffix(".new"))
        os.replace(path.with_suffix(".new"), path)

    def resume(self, path: Path) -> None:
        """Go on from what `checkpoint` wrote. The order of windows starts anew."""
        import torch

        state = torch.load(path, weights_only=True)
        self.model.load_state_dict(state["model"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self.step, self.elapsed, self.tokens_seen = state["counters"]
        self.curve = [tuple(point) for point in state["curve"]]

    def save(self, folder: Path, tokenizer: Any) -> None:
        """Write config, tokenizer and bf16 weights in Hugging Face format."""
        import torch

        self.model.to(torch.bfloat16).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        self.model.float()


def keep_freed_memory() -> None:
    """Let glibc keep freed memory instead of giving pages back at each step (a fifth faster)."""
    if sys.platform.startswith("linux"):
        libc = ctypes.CDLL(None)
        if hasattr(libc, "mallopt"):
            libc.mallopt(M_MMAP_MAX, 0)
            libc.mallopt(M_TRIM_THRESHOLD, TRIM_NEVER)
