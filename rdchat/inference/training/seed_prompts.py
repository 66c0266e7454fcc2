"""Seed prompts: the questions for which the target writes training data.

A seed prompt is a complete question, or the beginning of one, which the target finishes in the user's turn. Passages to
summarise, rewrite or ask about are earlier answers of the target, or texts written for this purpose, since a small
target writes neither long texts nor other languages well.

The texts are `assets/training/*.json`, in the package under `training_texts`. Gaps such as `{topic}` are filled in. The
order of the texts matters: changing a file changes the prompts of every seed. `prompt_kinds.json` has the share of each
kind of prompt; for kinds that are only begun it has the beginnings and how many tokens the target may add.
"""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import rdchat

# Limit of a question that the target writes from nothing.
_OWN_TOKENS = 60
# Paragraphs of an article to use, at least.
_FEWEST_PARAGRAPHS = 3


@dataclass(frozen=True, slots=True)
class SeedPrompt:
    """A question, or the beginning of one.

    Attributes:
        kind: Kind of task, for statistics.
        text: The question, or its beginning.
        more_tokens: Limit of the tokens that the target may add to it; 0 for a complete question.
    """

    kind: str
    text: str
    more_tokens: int = 0


@cache
def texts(name: str) -> dict[str, Any]:
    """Return a file of texts, read once: `seed_prompts`, `prompt_kinds`, `foreign_texts` or `written_texts`.

    Raises:
        OSError: If the file is missing, as in a damaged installation.
    """
    path = Path(rdchat.__file__).parent / "training_texts" / f"{name}.json"
    loaded: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return loaded


def seed_prompt(seed: int, number: int, passages: Sequence[str], long: bool, extra: Sequence[str] = ()) -> SeedPrompt:
    """Draw the seed prompt of a conversation; the same arguments give the same prompt.

    Half of them are the person's own questions, where there are some. Of the others the kind is drawn by its share; a
    kind that needs passages is a question about a topic while there are fewer than two.

    Args:
        seed: Seed of the training.
        number: Number of the conversation, from 0.
        passages: Texts that the target wrote before; may be empty.
        long: Whether it is about a long text: an article, search results, or joined passages.
        extra: The person's own questions, complete.
    """
    draw = random.Random(f"{seed}/{number}")
    if extra and draw.random() < 0.5:
        return SeedPrompt("given", draw.choice(extra))
    shares = texts("prompt_kinds")["long_shares" if long else "shares"]
    kind = draw.choices(list(shares), list(shares.values()))[0]
    if kind.startswith("passage") and len(passages) < 2:
        kind = "topic"
    # Words for all gaps are drawn, whatever the kind needs.
    gaps = _draw_gaps(draw, passages, draw.randint(2, 3) if long else 1)
    return _prompt(draw, kind, gaps, has_passages=bool(passages))


def _prompt(draw: random.Random, kind: str, gaps: dict[str, str], *, has_passages: bool) -> SeedPrompt:
    """Draw a prompt of a kind and fill in the gaps of its pattern.

    Args:
        draw: The random numbers.
        kind: A key of the shares in `prompt_kinds`.
        gaps: What fills each gap; see `_draw_gaps`.
        has_passages: Whether the target has written passages.
    """
    tables = texts("seed_prompts")
    written = texts("written_texts")
    name = kind
    pattern = ""
    tokens = 0
    match kind:
        case "request":
            return SeedPrompt(kind, draw.choice(written["requests"]))
        case "search":
            return SeedPrompt(kind, _search(draw))
        case "own":
            # The target writes all of it.
            tokens = _OWN_TOKENS
        case "topic":
            pattern = draw.choice(tables["texts"])
        case "translate":
            into = not (has_passages and draw.random() < 0.25)
            pattern = draw.choice(tables["into_english" if into else "from_english"])
        case "passage task":
            name, pattern = draw.choice(tables["passage_tasks"])
        case "article task":
            task, pattern = draw.choice(tables["passage_tasks"])
            name = f"article {task}"
            gaps = gaps | {"passage": _article(draw)}
        case "written translation":
            languages = list(written["foreign"])
            counts = [len(written["foreign"][language]) for language in languages]
            language = draw.choices(languages, counts)[0]
            gaps = gaps | {"language": language, "foreign": draw.choice(written["foreign"][language])}
            pattern = draw.choice(tables["into_english"])
        case _:
            table, tokens = texts("prompt_kinds")["starts"][kind]
            pattern = draw.choice(tables[table])
    return SeedPrompt(name, pattern.format_map(gaps), tokens)


def _draw_gaps(draw: random.Random, passages: Sequence[str], joined: int) -> dict[str, str]:
    """Draw a word for every gap that a pattern may have.

    `passage` is made of `joined` passages; `second` is one more, or the last of these where there are no more.
    """
    tables = texts("seed_prompts")
    name, other = draw.sample(tables["names"], 2)
    drawn = draw.sample(passages, min(joined + 1, len(passages)))
    passage = " ".join(drawn[:joined])
    language = draw.choice(list(texts("foreign_texts")))
    return {
        "topic": draw.choice(tables["topics"]),
        "language": language,
        "foreign": foreign_text(draw, language),
        "name": name,
        "other": other,
        "things": draw.choice(tables["things"]),
        "a": str(draw.randint(2, 12)),
        "b": str(draw.randint(5, 60)),
        "passage": passage,
        "second": drawn[-1] if drawn else "",
        "sentence": passage.split(". ")[0],
    }


def foreign_text(draw: random.Random, language: str) -> str:
    """Return one or two sentences in a language, some with another clause.

    The language's `pattern` puts together a time (`when`), a subject (`who`) and what it did (`what`).
    """
    grammar = texts("foreign_texts")[language]
    sentences = []
    for _ in range(draw.randint(1, 2)):
        clause = draw.choice(grammar["clauses"]) if draw.random() < 0.6 else ""
        parts = {"when": draw.choice(grammar["times"]), "who": draw.choice(grammar["subjects"])}
        sentences.append(grammar["pattern"].format(**parts, what=draw.choice(grammar["deeds"])) + clause + ".")
    return " ".join(sentences)


def _article(draw: random.Random) -> str:
    """Return an article, or some consecutive paragraphs of one."""
    paragraphs = draw.choice(texts("written_texts")["articles"]).split("\n\n")
    count = draw.randint(min(_FEWEST_PARAGRAPHS, len(paragraphs)), len(paragraphs))
    first = draw.randint(0, len(paragraphs) - count) if draw.random() < 0.4 else 0
    return "\n\n".join(paragraphs[first : first + count])


def _search(draw: random.Random) -> str:
    """Return a prompt of several passages, perhaps with an unrelated one among them, and a question."""
    written = texts("written_texts")
    search, other = draw.sample(written["searches"], 2)
    passages = list(search["passages"])
    if draw.random() < 0.5:
        passages.append(draw.choice(other["passages"]))
    draw.shuffle(passages)
    label = draw.choice(written["passage_labels"])
    listed = [label.format(number=number, text=text) for number, text in enumerate(passages, start=1)]
    pattern = draw.choice(written["search_patterns"])
    question = draw.choice(search["questions"])
    prompt: str = pattern.format(passages="\n\n".join(listed), question=question)
    return prompt
