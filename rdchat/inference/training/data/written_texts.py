"""Texts that were written for training: news articles, short texts in other languages, search results, and requests.

A small target writes nothing as long or as varied itself, so what it is asked to summarise, translate or look up would
else be short. They are `assets/training/written_texts.json`; none of them is taken from anywhere. Their order is part
of what a training's seed decides.
"""

import random
from dataclasses import dataclass
from functools import cache

from rdchat.inference.training.data.seed_patterns import read_texts

_FEWEST_PARAGRAPHS = 3  # of an article


@dataclass(frozen=True, slots=True)
class _Search:
    """Passages on one topic, and questions that are answered by one of them each."""

    passages: list[str]
    questions: list[str]


@dataclass(frozen=True, slots=True)
class WrittenTexts:
    """What the file holds, and how it is drawn from.

    Attributes:
        articles: News in English, of 450 to 800 words in paragraphs.
        foreign: Texts of one to some ten sentences, by the name of their language.
        searches: Passages with questions.
        requests: Whole prompts.
        search_patterns: Prompts with gaps for `{passages}` and a `{question}`.
        passage_labels: How passages are listed: `{number}` and `{text}`.
    """

    articles: list[str]
    foreign: dict[str, list[str]]
    searches: list[_Search]
    requests: list[str]
    search_patterns: list[str]
    passage_labels: list[str]

    def article(self, draw: random.Random) -> str:
        """Return an article, or some paragraphs of one that follow each other."""
        paragraphs = draw.choice(self.articles).split("\n\n")
        count = draw.randint(min(_FEWEST_PARAGRAPHS, len(paragraphs)), len(paragraphs))
        first = draw.randint(0, len(paragraphs) - count) if draw.random() < 0.4 else 0
        return "\n\n".join(paragraphs[first : first + count])

    def foreign_text(self, draw: random.Random) -> tuple[str, str]:
        """Return the name of a language, and a text in it: the more of them there are, the likelier."""
        languages = list(self.foreign)
        language = draw.choices(languages, [len(self.foreign[name]) for name in languages])[0]
        return language, draw.choice(self.foreign[language])

    def search(self, draw: random.Random) -> str:
        """Return a prompt of several passages, perhaps one from elsewhere among them, with a question."""
        search, other = draw.sample(self.searches, 2)
        passages = [*search.passages, draw.choice(other.passages)] if draw.random() < 0.5 else list(search.passages)
        draw.shuffle(passages)
        label = draw.choice(self.passage_labels)
        listed = [label.format(number=number, text=text) for number, text in enumerate(passages, start=1)]
        pattern, question = draw.choice(self.search_patterns), draw.choice(search.questions)
        return pattern.format(passages="\n\n".join(listed), question=question)


@cache
def written_texts() -> WrittenTexts:
    """Return the texts; the file is read once.

    Raises:
        OSError, KeyError, TypeError: If the installation is damaged.
    """
    read = read_texts("written_texts.json")
    return WrittenTexts(**read | {"searches": [_Search(**search) for search in read["searches"]]})
