"""The built-in prompts stay the ones that earlier trainings were made of."""

import hashlib
import json
import random
from dataclasses import asdict

from rdchat.inference.training.data.foreign_texts import foreign_text, languages
from rdchat.inference.training.data.seed_patterns import seed_patterns
from rdchat.inference.training.data.seed_prompts import SeedPromptSource


def digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()


def test_the_built_in_prompts_are_the_same_in_the_same_order() -> None:
    assert (
        digest(list(asdict(seed_patterns()).items()))
        == "0ab0a0c82043cb37a6213279e80fc803ace6e1d190e9acf08b1550df199cc845"
    )
    draw = random.Random(1)
    drawn = [[language, foreign_text(draw, language, 3)] for _ in range(2000) for language in languages()]
    assert digest(drawn) == "5d427d6ea6d5a56756c98db0a0666eaf01a78c633e12054d317f89be943bdc08"


def test_a_seed_gives_the_same_prompts_as_ever() -> None:
    passages = [f"Passage {number}. It says more." for number in range(6)]
    source = SeedPromptSource(7, ["a question of the person's own"])
    drawn = [asdict(source.seed_prompt(number, passages, number % 4 == 0)) for number in range(3000)]
    assert (
        digest([list(each.values()) for each in drawn])
        == "c03ec94f840e625dedec2a119625cc8aeb76d902d7a58e54264e096a743dbaff"
    )
