"""A device that computes other numbers than another one is found, and rounding is not taken for that."""

import json
from collections.abc import Sequence
from math import nan
from typing import Any

import numpy as np
import pytest

from rdchat.inference.api import EVERYDAY_PROMPTS, Prompt
from rdchat.inference.benchmark import known_replies
from rdchat.inference.benchmark.known_replies import KNOWN, NEAR, compare_replies

REPLIES = json.loads(KNOWN.read_text())


def outcomes() -> list[dict[str, Any]]:
    facts: dict[str, Any] = {}
    compare_replies(facts, lambda _stage: None)
    replies: list[dict[str, Any]] = facts["replies"]
    return replies


def compute(monkeypatch: pytest.MonkeyPatch, off: float, ahead: float) -> None:
    """Make the device's logits those that are known but for `off`, and another token's logit larger by `ahead`."""

    def logits_along(_model: object, prompt: Prompt, reply: Sequence[int]) -> Any:
        known = np.array(REPLIES[EVERYDAY_PROMPTS.index(prompt)]["logits"])
        logits = np.full((len(reply), 50_000), -100.0)
        logits[np.arange(len(reply)), reply] = known + off
        logits[3, 49_999] = known[3] + off + ahead
        return logits

    monkeypatch.setattr(known_replies, "load_model", lambda *_arguments: None)
    monkeypatch.setattr(known_replies, "logits_along", logits_along)


@pytest.mark.parametrize(
    ("off", "ahead", "is_right"),
    [
        (0.0, -1.0, True),
        (1e-4, 1e-4, True),  # a near-tie
        (-1e-4, NEAR * 2, False),  # another token
        (NEAR * 2, -1.0, False),  # the same text, by other numbers
        (nan, -1.0, False),
    ],
)
def test_rounding_is_right_and_other_numbers_are_not(
    monkeypatch: pytest.MonkeyPatch, off: float, ahead: float, is_right: bool
) -> None:
    compute(monkeypatch, off, ahead)
    assert [each["is_right"] for each in outcomes()] == [is_right] * len(EVERYDAY_PROMPTS)


@pytest.mark.slow
@pytest.mark.usefixtures("default_model_folder")
def test_this_machine_computes_the_known_replies() -> None:
    found = outcomes()
    assert len(found) == len(EVERYDAY_PROMPTS)
    assert all(each["is_right"] for each in found), found
    assert max(each["distance"] for each in found) < NEAR / 10
