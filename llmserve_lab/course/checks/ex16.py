"""Exercise 16: chained block hashes, and which of a prompt's blocks may be shared."""

from __future__ import annotations

from llmserve_lab.course.checks import ex16_cases as cases
from llmserve_lab.course.checks import ex16_mutants as mutants
from llmserve_lab.course.checks.ex16_answers import full_blocks, keys, longest, match, publish
from llmserve_lab.course.checks.grader import Grader
from llmserve_lab.course.checks.prefix_table import PrefixTable
from llmserve_lab.course.checks.tokens import Rows, Tokens

GRADERS = (
    Grader(
        key="16.1",
        name="ex16_full_blocks",
        reference=full_blocks,
        shape=Rows(),
        cases=cases.splits,
        hints=(
            "With 5 tokens and blocks of 2, how many blocks are full?",
            "Start a block at 0, size, 2 size and so on, as long as it fits.",
            "[tokens[i : i + size] for i in range(0, len(tokens) - size + 1, size)]",
        ),
        mutants=mutants.FULL_BLOCKS,
    ),
    Grader(
        key="16.2",
        name="ex16_keys",
        reference=keys,
        shape=Tokens("keys"),
        cases=cases.chains,
        hints=(
            "What is hashed together with the second block, so that its beginning counts?",
            "Keep the latest key in `before`: it goes into the next hash. It starts as the salt.",
            "In the loop: before = h(before, block); found.append(before). Return found.",
        ),
        mutants=mutants.KEYS,
    ),
    Grader(
        key="16.3",
        name="ex16_longest",
        reference=longest,
        shape=Tokens("blocks"),
        cases=cases.runs,
        hints=(
            "The third key is missing, the fourth is there. Which blocks can be used?",
            "Go through the keys in order and leave the loop at the first that is not in the "
            "table.",
            "if key not in table: break; then blocks.append(table[key].block). Return blocks.",
        ),
        mutants=mutants.LONGEST,
    ),
    Grader(
        key="16.4",
        name="ex16_match",
        reference=match,
        shape=Tokens("blocks"),
        cases=cases.lookups,
        hints=(
            "Which three things can be wrong with an entry that has the right key? And what is "
            "left to compute if all blocks are found?",
            "Look up the keys of tokens[:-1] only. Compare entry.salt, and entry.tokens with a "
            "tuple of all tokens up to this block's end.",
            "for index, key in enumerate(keys(tokens[:-1], size, salt, h)): entry = "
            "table.get(key); stop unless entry is there, entry.salt == salt and entry.tokens == "
            "tuple(tokens[: (index + 1) * size]); else append entry.block.",
        ),
        mutants=mutants.MATCH,
    ),
    Grader(
        key="16.5",
        name="ex16_publish",
        reference=publish,
        shape=PrefixTable(),
        cases=cases.blocks_done,
        hints=(
            "When must nothing be added? And which of the keys of these tokens is the block's?",
            "It is the last key. Copy the table first: someone may be reading the old one.",
            "Unless tokens is empty, len(tokens) % size is not 0 or the key is in the table: "
            "return {**table, key: Entry(block, salt, tuple(tokens))}; else dict(table).",
        ),
        mutants=mutants.PUBLISH,
    ),
)
