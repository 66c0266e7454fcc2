"""The built-in patterns of seed prompts, which `SeedPromptSource` draws from and fills in.

They are `assets/training/seed_prompts.json`. Their order is part of what a training's seed decides: whoever changes the
file changes what every seed gives.
"""

import json
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

import rdchat


@dataclass(frozen=True, slots=True)
class SeedPatterns:
    """Words and patterns; a gap such as `{topic}` is filled in with a word.

    Attributes:
        topics, names, things: Words for the gaps of these names.
        texts: Tasks whose answers serve as passages later.
        question_starts, fact_starts, code_starts, reasoning_starts, role_starts, maths_starts: Beginnings of questions
            that the target finishes itself.
        into_english, from_english: Translations.
        passage_tasks: Pairs of a kind, which is for statistics only, and a task about a passage.
        passage_questions: Passages with the beginning of a question about them.
    """

    topics: tuple[str, ...]
    texts: tuple[str, ...]
    question_starts: tuple[str, ...]
    fact_starts: tuple[str, ...]
    code_starts: tuple[str, ...]
    reasoning_starts: tuple[str, ...]
    role_starts: tuple[str, ...]
    names: tuple[str, ...]
    things: tuple[str, ...]
    maths_starts: tuple[str, ...]
    into_english: tuple[str, ...]
    from_english: tuple[str, ...]
    passage_tasks: tuple[tuple[str, str], ...]
    passage_questions: tuple[str, ...]


@cache
def seed_patterns() -> SeedPatterns:
    """Return the built-in patterns; the file is read once.

    Raises:
        OSError, KeyError: If the installation is damaged.
    """
    read = read_texts("seed_prompts.json")
    tables = {field.name: tuple(read[field.name]) for field in fields(SeedPatterns)}
    return SeedPatterns(**tables | {"passage_tasks": tuple((kind, text) for kind, text in read["passage_tasks"])})


def read_texts(name: str) -> dict[str, Any]:
    """Return what a JSON file of `assets/training/` holds, which the package has under `training_texts`.

    Raises:
        OSError: If the file is missing, as in a damaged installation.
    """
    path = Path(rdchat.__file__).parent / "training_texts" / name
    loaded: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return loaded
