"""Train the bundled pair from scratch: `python -m llmserve_lab.models.train --minutes 60`.

The target learns from the corpus; the draft learns from the corpus and from the target's
distribution (knowledge distillation, Hinton et al. 2015). Runs on a CPU or a GPU, keeps a
checkpoint to go on from, and writes the model cards from what it measured.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from llmserve_lab.models import corpus
from llmserve_lab.models.card import write_cards
from llmserve_lab.models.recipe import DRAFT, TARGET, Recipe
from llmserve_lab.models.tokenizer import END_OF_TEXT, train_tokenizer
from llmserve_lab.models.trainer import Trainer

TARGET_SHARE = 0.8  # of the minutes; the draft gets the rest


def main(arguments: list[str] | None = None) -> None:
    options = _parse(arguments)
    training, held_out = corpus.split(corpus.standard_library())
    tokenizer = train_tokenizer((file.text for file in training), TARGET.context)
    tokens = _encode(tokenizer, training)
    print(f"{len(training)} files, {len(tokens):,} tokens; {len(held_out)} files held out")

    minutes = {"lab-target": options.minutes * TARGET_SHARE}
    minutes["lab-draft"] = options.minutes - minutes["lab-target"]
    target = _train(TARGET, tokens, minutes[TARGET.name], options, teacher=None)
    draft = _train(DRAFT, tokens, minutes[DRAFT.name], options, teacher=target.model)
    corpus.write_sample(held_out)
    for trainer in (target, draft):
        trainer.save(options.out / trainer.recipe.name, tokenizer)
    metrics = write_cards(target, draft, options.out, training, held_out)
    for name, measured in metrics.items():
        print(
            f"{name}: {measured['bits_per_byte']} bits per byte on held-out files "
            f"(gzip -9: {measured['gzip_bits_per_byte']})"
        )
    agreement = metrics[DRAFT.name]["greedy_agreement_with_target"]
    print(f"The draft's greedy tokens agree with the target's at {agreement:.1%} of positions.")


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="llmserve_lab.models.train", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60, help="for both models together")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="folder to write")
    parser.add_argument("--work", type=Path, default=Path(".training"), help="checkpoint folder")
    parser.add_argument("--fresh", action="store_true", help="ignore checkpoints of earlier runs")
    parser.add_argument("--compile", action="store_true", help="use torch.compile")
    options = parser.parse_args(arguments)
    if options.minutes <= 0:
        parser.error("--minutes must be above 0")
    return options


def _encode(tokenizer: Any, files: list[corpus.SourceFile]) -> Any:
    """All files as one array of token ids, each after an end-of-text token. (tokens,) int64"""
    import numpy

    end = tokenizer.convert_tokens_to_ids(END_OF_TEXT)
    ids: list[int] = []
    for file in files:
        ids.append(end)
        ids.extend(tokenizer(file.text, verbose=False)["input_ids"])
    return numpy.array(ids, dtype=numpy.int64)


def _train(
    recipe: Recipe, tokens: Any, minutes: float, options: argparse.Namespace, teacher: Any
) -> Trainer:
    trainer = Trainer(recipe, tokens, teacher=teacher, use_compile=options.compile)
    checkpoint = options.work / f"{recipe.name}.pt"
    if checkpoint.exists() and not options.fresh:
        trainer.resume(checkpoint)
    trainer.run(seconds=minutes * 60, checkpoint=checkpoint)
    return trainer


if __name__ == "__main__":
    main()
