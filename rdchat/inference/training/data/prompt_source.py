"""What the target is asked when it makes its own training data: varied openings, many of which it finishes itself.

An opening is the beginning of a question. An open one is left in the user's turn, so that the target writes the rest of
the question; a closed one is answered as it is. Passages to summarise, rewrite or ask about are answers that the target
gave before.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from rdchat.inference.training.data import seed_prompts
from rdchat.inference.training.data.foreign_texts import LANGUAGES, foreign_text

_SHARES = {
    "question": 17,
    "maths": 14,
    "topic": 13,
    "translate": 10,
    "fact": 9,
    "code": 9,
    "passage task": 8,
    "passage question": 6,
    "own": 5,
    "role": 5,
    "reasoning": 4,
}
_LONG_SHARES = {"passage task": 55, "passage question": 45}
_STARTS = {  # kind: beginnings that the target finishes, and how many tokens it may add
    "question": (seed_prompts.QUESTION_STARTS, 40),
    "maths": (seed_prompts.MATHS_STARTS, 70),
    "fact": (seed_prompts.FACT_STARTS, 16),
    "code": (seed_prompts.CODE_STARTS, 60),
    "passage question": (seed_prompts.PASSAGE_QUESTIONS, 30),
    "own": (("",), 60),
    "role": (seed_prompts.ROLE_STARTS, 50),
    "reasoning": (seed_prompts.REASONING_STARTS, 70),
}


@dataclass(frozen=True, slots=True)
class Opening:
    """The beginning of a question.

    Attributes:
        kind: Which sort of task it is, for statistics.
        text: Its text.
        more_tokens: The most tokens the target may add to it; 0 where it is complete.
    """

    kind: str
    text: str
    more_tokens: int = 0


class PromptSource:
    """Draws openings; the same arguments give the same opening.

    Args:
        seed: Of the training.
        extra: Whole questions of the person's own, mixed in evenly with the built-in ones.
    """

    def __init__(self, seed: int, extra: Sequence[str] = ()) -> None:
        self._seed = seed
        self._extra = tuple(extra)

    def opening(self, number: int, passages: Sequence[str], long: bool) -> Opening:
        """Return the opening of a conversation.

        Args:
            number: Counts conversations.
            passages: Texts that the target wrote before; may be empty.
            long: Whether it is to be about two or three passages joined, where there are any.
        """
        draw = random.Random(f"{self._seed}/{number}")
        if self._extra and draw.random() < 0.5:
            return Opening("given", draw.choice(self._extra))
        long = long and len(passages) > 3
        shares = _LONG_SHARES if long else _SHARES
        kind = draw.choices(list(shares), list(shares.values()))[0]
        if kind.startswith("passage") and len(passages) < 2:
            kind = "topic"
        words = _choices(draw, passages, draw.randint(2, 3) if long else 1)
        if kind == "topic":
            return Opening(kind, draw.choice(seed_prompts.TEXTS).format_map(words))
        if kind == "translate":
            patterns = seed_prompts.FROM_ENGLISH if passages and draw.random() < 0.25 else seed_prompts.INTO_ENGLISH
            return Opening(kind, draw.choice(patterns).format_map(words))
        if kind == "passage task":
            name, pattern = draw.choice(seed_prompts.PASSAGE_TASKS)
            return Opening(name, pattern.format_map(words))
        starts, more = _STARTS[kind]
        return Opening(kind, draw.choice(starts).format_map(words), more)


def _choices(draw: random.Random, passages: Sequence[str], joined: int) -> dict[str, str]:
    """Draw a word for every gap that a pattern may have; a passage is `joined` of those there are."""
    name, other = draw.sample(seed_prompts.NAMES, 2)
    drawn = draw.sample(passages, min(joined + 1, len(passages)))
    passage = " ".join(drawn[:joined])
    language = draw.choice(LANGUAGES)
    return {
        "topic": draw.choice(seed_prompts.TOPICS),
        "language": language,
        "foreign": foreign_text(draw, language),
        "name": name,
        "other": other,
        "things": draw.choice(seed_prompts.THINGS),
        "a": str(draw.randint(2, 12)),
        "b": str(draw.randint(5, 60)),
        "passage": passage,
        "second": drawn[-1] if drawn else "",
        "sentence": passage.split(". ")[0],
    }
