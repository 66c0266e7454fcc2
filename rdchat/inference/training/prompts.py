"""What the target is asked when it makes its own training data: varied openings, many of which it finishes itself.

An opening is the beginning of a question. An open one is left in the user's turn, so that the target writes the rest of
the question; a closed one is answered as it is. Passages to translate, summarise or ask about are answers that the
target gave before.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass


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


def _words(text: str) -> tuple[str, ...]:
    """Split a block of text at its bars."""
    return tuple(word.strip() for word in text.replace("\n", "").split("|"))


TOPICS = _words("""
    the water cycle|a lighthouse keeper|bicycle maintenance|the history of tea|solar panels|volcanoes|city gardens|
    a lost dog|the printing press|learning to swim|ocean currents|the Silk Road|bread baking|jazz music|black holes|
    bees|electric cars|a mountain village|public libraries|the human heart|chess|rainforests|ancient Rome|
    the moon landing|coffee farming|a school play|sleep|the stock market|dinosaurs|photosynthesis|earthquakes|
    the Olympic Games|robots|a train journey|vaccines|glaciers|the invention of the telephone|migration of birds|
    painting|remote work|honesty|a fishing harbour|computer networks|the Great Wall of China|antibiotics|football|
    desert animals|cheese|space telescopes|a museum robbery|plastic waste|the violin|wind power|Egyptian pyramids|
    friendship|online shopping|whales|opera|gravity|a new mayor|river floods|machine learning|the French Revolution|
    yoga|submarines|maps|a bakery that closes|penguins|renewable energy|the immune system|hiking|
    the Roman aqueducts|paper making|elections|storms at sea|potatoes|magnets|a hospital strike|wolves|
    the Industrial Revolution|cooking rice|satellites|an old castle|traffic jams|databases|rice|the Amazon river|
    a rock band|air pollution|birdsong|stress at work|the Renaissance|sharks|knitting|steam engines|time|
    a village school|cancer research|mushrooms|the Vikings|clocks|inflation|salt|a chess champion|fire fighters|
    elephants|a startup company|diabetes|the Mediterranean|wooden boats|the brain|house prices|snow|camels|
    a wedding|trade unions
""")

_PASSAGE_MAKERS = (
    "Write a short news article about {topic}.",
    "Write an encyclopedia entry about {topic}.",
    "Write two paragraphs about {topic}.",
    "Tell a short story about {topic}.",
    "Write a blog post about {topic}.",
    "Write a report of what happened last week concerning {topic}.",
    "Describe {topic} to a child.",
    "Write a biography of a person who is known for {topic}.",
    "Write a short text in {language} about {topic}.",
    "Give five facts about {topic}.",
    "List the advantages and disadvantages of {topic}.",
    "Write a dialogue between two friends about {topic}.",
    "Write an email to a colleague about {topic}.",
    "What should everybody know about {topic}?",
)
_QUESTION_STARTS = (
    "What is",
    "What are",
    "Who",
    "Who was the first",
    "When did",
    "When was",
    "Where is",
    "Where does",
    "Why do",
    "How do I",
    "How does",
    "How many",
    "Which",
    "Can you explain",
    "Explain",
    "Compare",
    "Describe",
    "Give me",
    "Write a poem about",
    "Write a letter to",
    "Imagine you are",
    "Pretend to be",
    "Suggest",
    "Plan a",
    "Is it true that",
    "Name the",
    "In which year",
    "what is the meaning of",
    "who played",
    "how long does it take to",
    "What does the word",
    "Classify the following",
    "Draft a",
    "Outline",
    "Let's discuss {topic}.",
    "A question about {topic}:",
)
_CODE_STARTS = (
    "Write a Python function that",
    "Write a Python program to",
    "Write a function in JavaScript that",
    "Write a C++ program that",
    "Write an SQL query that",
    "Write a bash script that",
    "Write an HTML page with",
    "Implement in Python",
    "Explain what this code does:\n```python\n",
    "Find the bug in this code:\n```python\ndef ",
    "How do I in Python",
    "Write a class in Java for",
    "Write unit tests for this function:\n```python\ndef ",
)
_NAMES = _words("""
    Anna|Ben|Carla|David|Emma|Farid|Grace|Hugo|Ines|Jack|Kim|Leo|Maria|Noah|Olga|Paul|Rosa|Sam|Tina|Yusuf
""")
_THINGS = _words("""
    apples|books|pencils|cookies|marbles|eggs|stamps|tickets|coins|shirts|chairs|bottles|cards|oranges
""")
_MATHS_STARTS = (
    "{name} has {a} {things}.",
    "{name} buys {a} {things} for ${b} each.",
    "{name} works {a} hours a day and earns ${b} an hour.",
    "A shop sells {things} at ${a} each.",
    "A train travels at {b} miles per hour for {a} hours.",
    "{name} and {other} share {b} {things}.",
    "{name} is {a} years older than {other}.",
    "There are {b} students in a class.",
    "In a garden there are {a} rows of {b} plants.",
    "{name} saves ${a} every week.",
    "A recipe needs {a} cups of flour for {b} cakes.",
    "Every day {name} walks {a} miles.",
    "{name} reads {b} pages of a book with",
    "Solve the equation",
    "What is {a} times {b}",
    "A rectangle has a length of {b} and a width of {a}.",
    "The price of a ticket is ${b}.",
    "If {name} can paint a wall in {a} hours",
    "Calculate",
    "A farmer has {b} {things} and sells",
)
_LANGUAGES = ("German", "French", "Spanish", "Italian", "Portuguese", "Dutch")
_TRANSLATE_STARTS = (
    "Translate from {language} into English: ",
    "Translate this {language} sentence to English:\n",
    "What does this mean in English? ",
    "Please translate the following {language} text into English.\n\n",
    "Translate into {language}: ",
)
_WITH_PASSAGE = (
    ("summarise", "Summarize the following text:\n\n{passage}"),
    ("summarise", "{passage}\n\nSummarize this in two sentences."),
    ("summarise", "Summarise this article: {passage}"),
    ("summarise", "Give a short summary.\n\n{passage}"),
    ("summarise", "What are the main points of this text?\n\n{passage}"),
    ("summarise", "{passage}\nTL;DR:"),
    ("translate", "Translate the following text to {language}:\n\n{passage}"),
    ("translate", "Translate into English:\n\n{passage}"),
    ("rewrite", "Rewrite the following text in a more formal style:\n\n{passage}"),
    ("rewrite", "Correct the grammar of this text:\n\n{passage}"),
    ("rewrite", "Make this text shorter:\n\n{passage}"),
    ("rewrite", "Rewrite this as bullet points:\n\n{passage}"),
    ("rewrite", "Continue this text:\n\n{passage}"),
    ("extract", "List all names and places in this text:\n\n{passage}"),
    ("extract", "Extract the key facts from the text below.\n\n{passage}"),
    ("extract", "Which nouns occur in this text?\n\n{passage}"),
    ("extract", "What is this text about, and who is in it?\n\n{passage}"),
)
_ASK_PASSAGE = (
    "{passage}\n\nQuestion:",
    "Answer the question using the text.\n\nText: {passage}\n\nQuestion:",
    "Read the passage and answer the question.\n\n{passage}\n\n",
    "Use the context below to answer.\n\nContext:\n{passage}\n\nQuestion: What",
    "Use the context below to answer.\n\nContext:\n{passage}\n\nQuestion: Who",
    "Context: {passage}\nContext: {second}\nQuestion:",
    "Here are two documents.\n\nDocument 1: {passage}\n\nDocument 2: {second}\n\nUsing them, answer this question:",
    "Document [1]: {passage}\nDocument [2]: {second}\n\nAnswer from the documents: who",
    "Document [1]: {passage}\nDocument [2]: {second}\n\nAnswer from the documents: when",
)
_SHARES = {
    "passage task": 19,
    "question": 20,
    "maths": 14,
    "passage question": 11,
    "topic": 10,
    "code": 8,
    "own": 6,
    "translate": 6,
}


class PromptSource:
    """Draws openings; the same seed, number and passages give the same opening.

    Args:
        seed: Of the training.
        extra: Whole questions of the person's own, mixed in evenly with the built-in ones.
    """

    def __init__(self, seed: int, extra: Sequence[str] = ()) -> None:
        self._seed = seed
        self._extra = tuple(extra)

    def opening(self, number: int, passages: Sequence[str]) -> Opening:
        """Return the opening of conversation `number`.

        Args:
            number: Counts conversations.
            passages: Texts that the target wrote before; may be empty.
        """
        draw = random.Random(f"{self._seed}/{number}")
        if self._extra and draw.random() < 0.5:
            return Opening("given", draw.choice(self._extra))
        kind = draw.choices(list(_SHARES), list(_SHARES.values()))[0]
        if kind.startswith("passage") and len(passages) < 2:
            kind = "topic"
        words = self._choices(draw, passages)
        if kind == "own":
            return Opening(kind, "", 60)
        if kind == "topic":
            return Opening(kind, draw.choice(_PASSAGE_MAKERS).format_map(words))
        if kind == "passage task":
            name, pattern = draw.choice(_WITH_PASSAGE)
            return Opening(name, pattern.format_map(words))
        starts, more = {
            "question": (_QUESTION_STARTS, 40),
            "code": (_CODE_STARTS, 60),
            "maths": (_MATHS_STARTS, 70),
            "translate": (_TRANSLATE_STARTS, 60),
            "passage question": (_ASK_PASSAGE, 30),
        }[kind]
        return Opening(kind, draw.choice(starts).format_map(words), more)

    @staticmethod
    def _choices(draw: random.Random, passages: Sequence[str]) -> dict[str, str]:
        name, other = draw.sample(_NAMES, 2)
        passage, second = draw.sample(passages, 2) if len(passages) > 1 else ("", "")
        return {
            "topic": draw.choice(TOPICS),
            "language": draw.choice(_LANGUAGES),
            "name": name,
            "other": other,
            "things": draw.choice(_THINGS),
            "a": str(draw.randint(2, 12)),
            "b": str(draw.randint(5, 60)),
            "passage": passage,
            "second": second,
        }
