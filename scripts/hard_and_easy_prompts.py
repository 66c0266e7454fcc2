"""Makes prompts that are hard or easy to draft for: random strings to continue, and long texts to copy.

    python scripts/hard_and_easy_prompts.py QUESTIONS > PROMPTS

QUESTIONS are Spec-Bench's; their articles are the texts. PROMPTS is for `rdchat bench --prompts`: eight of each kind,
in turns, with the kind as their group.
"""

import argparse
import json
import random
import string
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from rdchat.inference.api.prompt_files import read_prompts

EACH = 8
_TASK = "Summarize: "  # what Spec-Bench puts before an article
_LENGTH = 1200  # characters of one that are to be copied
_ALPHABETS = (string.ascii_lowercase, string.hexdigits[:16], string.ascii_letters + string.digits, string.digits)


def random_strings() -> Iterator[str]:
    """Yield prompts with ten random strings, of which the model should write more."""
    rng = random.Random(0)
    for number in range(EACH):
        alphabet = _ALPHABETS[number % len(_ALPHABETS)]
        strings = "\n".join("".join(rng.choices(alphabet, k=12)) for _ in range(10))
        yield f"These strings are random:\n{strings}\nWrite twenty more of them, one a line, and nothing else."


def copying(questions: Path) -> Iterator[str]:
    """Yield prompts with an article, which the model should repeat."""
    tasks = (prompt.text for prompt in read_prompts(questions) if prompt.group == "summarization")
    for task in islice(tasks, EACH):
        text = task.removeprefix(_TASK)[:_LENGTH].rpartition(" ")[0]
        yield f"Copy this text word by word, and write nothing else:\n\n{text}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("questions", type=Path)
    args = parser.parse_args()
    for hard, easy in zip(random_strings(), copying(args.questions), strict=True):
        print(json.dumps({"prompt": hard, "category": "random strings"}))
        print(json.dumps({"prompt": easy, "category": "copying"}))


if __name__ == "__main__":
    main()
