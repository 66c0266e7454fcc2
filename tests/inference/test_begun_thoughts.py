"""A chat template that begins the reply's thought itself, with the real engine."""

from pathlib import Path

import pytest

from rdchat.inference.api.events import PrefillProgress
from rdchat.inference.api.messages import ChatMessage, Role
from rdchat.inference.api.requests import Dtype, GenerationRequest, SamplingParams
from rdchat.inference.loading import load_model
from rdchat.inference.session import ChatSession
from tests.grids import share
from tests.inference.prompts.folders import with_template

TEMPLATE = "{% for message in messages %}{{ message.content }}{% endfor %}ENDING"


@pytest.mark.parametrize(
    ("ending", "in_thought"),
    share([("<think>\n", True), ("<think>\n\n</think>\n\n", False), ("[THINK]", True), ("a <think> b", False)], 4),
)
def test_the_first_event_tells_that_the_reply_begins_in_a_thought(
    small_model: Path, tmp_path: Path, ending: str, in_thought: bool
) -> None:
    folder = with_template(small_model, tmp_path / "model", TEMPLATE.replace("ENDING", ending))
    session = ChatSession(load_model(str(folder), Dtype.AUTO, lambda _: None))
    asked = GenerationRequest((ChatMessage(Role.USER, "Hi"),), SamplingParams(temperature=0, max_tokens=1))
    first, *_ = session.generate(asked)
    assert isinstance(first, PrefillProgress)
    assert first.in_thought is in_thought
