"""The built-in prompts: the same for a seed, and of every kind."""

import hashlib
import json
import random
from dataclasses import asdict

from rdchat.inference.training.seed_prompts import foreign_text, seed_prompt, texts


def digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()


def test_the_built_in_prompts_are_the_same_in_the_same_order() -> None:
    assert (
        digest(list(texts("seed_prompts").items()))
        == "0ab0a0c82043cb37a6213279e80fc803ace6e1d190e9acf08b1550df199cc845"
    )
    draw = random.Random(1)
    drawn = [[language, foreign_text(draw, language, 3)] for _ in range(2000) for language in texts("foreign_texts")]
    assert digest(drawn) == "5d427d6ea6d5a56756c98db0a0666eaf01a78c633e12054d317f89be943bdc08"


def test_a_seed_gives_the_same_prompts_as_ever() -> None:
    passages = [f"Passage {number}. It says more." for number in range(6)]
    own = ["a question of the person's own"]
    drawn = [asdict(seed_prompt(7, number, passages, number % 4 == 0, own)) for number in range(3000)]
    assert (
        digest([list(each.values()) for each in drawn])
        == "694a7338268e6d543eb40c334d4c0720d1e4d185e5c0e8ec988b30984a905eb0"
    )


def test_long_batches_ask_about_long_texts_and_others_do_not() -> None:
    passages = [f"Passage {number}. It says more." for number in range(6)]
    long, short = ([seed_prompt(3, number, passages, is_long) for number in range(400)] for is_long in (True, False))
    written = [prompt for prompt in long if prompt.kind == "search" or prompt.kind.startswith("article")]
    assert len(written) > 300
    assert sum(len(prompt.text) > 1200 for prompt in written) > 250
    assert max(len(prompt.text) for prompt in short) < 1600


def test_written_texts_are_whole_and_told_apart() -> None:
    written = texts("written_texts")
    foreign = [text for texts in written["foreign"].values() for text in texts]
    whole = [*written["articles"], *foreign, *written["requests"]]
    assert len(set(whole)) == len(whole)
    assert all(text == text.strip() and "{" not in pattern.format(passages="", question="")
               for text in whole for pattern in written["search_patterns"])  # fmt: skip
    questions = [question for search in written["searches"] for question in search["questions"]]
    long = [seed_prompt(3, number, [], True) for number in range(200)]
    short = [seed_prompt(3, number, [], False) for number in range(200)]
    articles = [prompt.text for prompt in long if prompt.kind.startswith("article")]
    searches = [prompt.text for prompt in long if prompt.kind == "search"]
    translations = [prompt.text for prompt in short if prompt.kind == "written translation"]
    assert min(len(articles), len(searches), len(translations)) > 10
    assert all(any(part in text for each in written["articles"] for part in each.split("\n\n")) for text in articles)
    assert all(any(text in prompt for text in foreign) for prompt in translations)
    assert all(any(question in prompt for question in questions) for prompt in searches)
