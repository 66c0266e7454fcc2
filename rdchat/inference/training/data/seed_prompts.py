"""Seed prompts: what the target is asked when it makes its own training data. Many it finishes itself.

A seed prompt is a whole question, or the beginning of one: then it is left in the user's turn, so that the target
writes the rest. Passages to summarise, rewrite or ask about are answers that the target gave before, or were written
for this (`written_texts`).
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from rdchat.inference.training.data.foreign_texts import foreign_text, languages
from rdchat.inference.training.data.seed_patterns import SeedPatterns, seed_patterns
from rdchat.inference.training.data.written_texts import written_texts

_SHARES = {
    "question": 15,
    "maths": 14,
    "written translation": 12,
    "topic": 11,
    "request": 10,
    "code": 8,
    "fact": 7,
    "passage task": 5,
    "translate": 6,
    "own": 4,
    "reasoning": 4,
    "passage question": 2,
    "role": 2,
}
_LONG_SHARES = {"article task": 50, "search": 38, "passage task": 6, "passage question": 6}
_WRITTEN = {"request", "search", "article task", "written translation"}
_MORE_TOKENS = {  # kind: how many tokens the target may add to a beginning
    "question": 40,
    "maths": 70,
    "fact": 16,
    "code": 60,
    "passage question": 30,
    "own": 60,
    "role": 50,
    "reasoning": 70,
}


@dataclass(frozen=True, slots=True)
class SeedPrompt:
    """A question, or the beginning of one.

    Attributes:
        kind: The sort of task, for statistics.
        text: Its text.
        more_tokens: The most tokens that the target may add to it; 0 for a whole question.
    """

    kind: str
    text: str
    more_tokens: int = 0


class SeedPromptSource:
    """Draws seed prompts; the same arguments give the same prompt.

    Args:
        seed: Of the training.
        extra: Whole questions of the person's own, mixed in evenly with the built-in ones.
    """

    def __init__(self, seed: int, extra: Sequence[str] = ()) -> None:
        self._seed = seed
        self._extra = tuple(extra)

    def seed_prompt(self, number: int, passages: Sequence[str], long: bool) -> SeedPrompt:
        """Return the seed prompt of a conversation.

        Args:
            number: Of the conversation, from 0.
            passages: Texts that the target wrote before; may be empty.
            long: Whether it is to be about a long text: an article, search results, or passages joined.
        """
        draw = random.Random(f"{self._seed}/{number}")
        if self._extra and draw.random() < 0.5:
            return SeedPrompt("given", draw.choice(self._extra))
        shares = _LONG_SHARES if long else _SHARES
        kind = draw.choices(list(shares), list(shares.values()))[0]
        if kind.startswith("passage") and len(passages) < 2:
            kind = "topic"
        words = _choices(draw, passages, draw.randint(2, 3) if long else 1)
        tables = seed_patterns()
        if kind in _WRITTEN:
            return _written(draw, kind, words)
        if kind == "topic":
            return SeedPrompt(kind, draw.choice(tables.texts).format_map(words))
        if kind == "translate":
            patterns = tables.from_english if passages and draw.random() < 0.25 else tables.into_english
            return SeedPrompt(kind, draw.choice(patterns).format_map(words))
        if kind == "passage task":
            name, pattern = draw.choice(tables.passage_tasks)
            return SeedPrompt(name, pattern.format_map(words))
        return SeedPrompt(kind, draw.choice(_starts(tables)[kind]).format_map(words), _MORE_TOKENS[kind])


def _written(draw: random.Random, kind: str, words: dict[str, str]) -> SeedPrompt:
    """Return a prompt about, or out of, the texts that were written for training."""
    tables, written = seed_patterns(), written_texts()
    if kind == "request":
        return SeedPrompt(kind, draw.choice(written.requests))
    if kind == "search":
        return SeedPrompt(kind, written.search(draw))
    if kind == "article task":
        task, pattern = draw.choice(tables.passage_tasks)
        return SeedPrompt(f"article {task}", pattern.format_map(words | {"passage": written.article(draw)}))
    language, text = written.foreign_text(draw)
    pattern = draw.choice(tables.into_english)
    return SeedPrompt(kind, pattern.format_map(words | {"language": language, "foreign": text}))


def _starts(tables: SeedPatterns) -> dict[str, tuple[str, ...]]:
    """Return the beginnings of each kind that the target finishes."""
    return {
        "question": tables.question_starts,
        "maths": tables.maths_starts,
        "fact": tables.fact_starts,
        "code": tables.code_starts,
        "passage question": tables.passage_questions,
        "own": ("",),
        "role": tables.role_starts,
        "reasoning": tables.reasoning_starts,
    }


def _choices(draw: random.Random, passages: Sequence[str], joined: int) -> dict[str, str]:
    """Draw a word for every gap that a pattern may have; a passage is `joined` of those there are."""
    tables = seed_patterns()
    name, other = draw.sample(tables.names, 2)
    drawn = draw.sample(passages, min(joined + 1, len(passages)))
    passage = " ".join(drawn[:joined])
    language = draw.choice(languages())
    return {
        "topic": draw.choice(tables.topics),
        "language": language,
        "foreign": foreign_text(draw, language),
        "name": name,
        "other": other,
        "things": draw.choice(tables.things),
        "a": str(draw.randint(2, 12)),
        "b": str(draw.randint(5, 60)),
        "passage": passage,
        "second": drawn[-1] if drawn else "",
        "sentence": passage.split(". ")[0],
    }
