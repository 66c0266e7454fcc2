"""Short news-like texts in German, French, Spanish and Italian, put together from parts, to be translated.

A small target writes other languages badly, so what it is asked to translate cannot be its own. Every sentence is
"when has who done what", with a clause behind some of them: some ten thousand sentences a language. The parts are
`assets/training/foreign_texts.json`; the order of languages and parts is what a training's seed decides by.
"""

import random
from dataclasses import dataclass
from functools import cache

from rdchat.inference.training.data.seed_patterns import read_texts


@dataclass(frozen=True, slots=True)
class _Grammar:
    """The parts of a language's sentences.

    Attributes:
        pattern: How they are put together.
        times: When.
        subjects: Who, in the singular.
        deeds: What they have done: an object and a participle, in the language's order.
        clauses: What may follow.
    """

    pattern: str
    times: list[str]
    subjects: list[str]
    deeds: list[str]
    clauses: list[str]

    def sentence(self, draw: random.Random) -> str:
        """Return one sentence with its full stop."""
        clause = draw.choice(self.clauses) if draw.random() < 0.6 else ""
        parts = {"when": draw.choice(self.times), "who": draw.choice(self.subjects), "what": draw.choice(self.deeds)}
        return self.pattern.format(**parts) + clause + "."


@cache
def _grammars() -> dict[str, _Grammar]:
    return {language: _Grammar(**parts) for language, parts in read_texts("foreign_texts.json").items()}


def languages() -> tuple[str, ...]:
    """Return the names of the languages."""
    return tuple(_grammars())


def foreign_text(draw: random.Random, language: str, most_sentences: int = 2) -> str:
    """Return one or more sentences.

    Args:
        draw: Decides.
        language: One of `languages()`.
        most_sentences: At most so many.
    """
    grammar = _grammars()[language]
    return " ".join(grammar.sentence(draw) for _ in range(draw.randint(1, most_sentences)))
