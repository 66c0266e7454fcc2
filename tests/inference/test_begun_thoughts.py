"""A chat template that begins the reply's thought itself, with the real engine."""

from itertools import product
from pathlib import Path
from typing import Any

import pytest

from rdchat.inference.api import (
    THINK,
    ChatMessage,
    Dtype,
    GenerationRequest,
    PrefillProgress,
    Role,
    SamplingParams,
    TokenEvent,
    own_markers,
    split_thoughts,
)
from rdchat.inference.loading import load_model
from rdchat.inference.session import ChatSession
from rdchat.inference.verification.target import LoadedModel
from tests.grids import share
from tests.inference.prompts.folders import changed, with_template

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


def thinks_with_tokens(tokenizer: dict[str, Any]) -> None:
    """Make the markers of thoughts tokens in place of two words."""
    vocabulary = tokenizer["model"]["vocab"]
    merges = tokenizer["model"]["merges"]
    for word, marker, parts in (("hello", "<think>", ["hell", "o"]), ("12", "</think>", ["1", "2"])):
        merges.remove(parts)
        number = vocabulary[marker] = vocabulary.pop(word)
        usual = tokenizer["added_tokens"][0]
        tokenizer["added_tokens"].append(usual | {"id": number, "content": marker})


@pytest.fixture(scope="module")
def thinkers(small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, LoadedModel]:
    """Models that think, by what their chat template writes before a reply."""
    models = {}
    for ending in ENDINGS:
        place = tmp_path_factory.mktemp("thinker") / "model"
        folder = with_template(small_model, place, TEMPLATE.replace("ENDING", f"|{ending}"))
        models[ending] = load_model(changed(small_model, folder, "tokenizer.json", thinks_with_tokens), "float32")
    return models


ENDINGS = ("<think>\n", "<think>", "<think>\n\n</think>\n\n", "")
HM = "<think>\nhm\n</think>\n\nThe dog"
DOG = "The dog"
# The beginning of a reply, its thought and answer, and whether that is known.
BEGUN = (
    (DOG, "", DOG, None),
    ("The <think> dog", "", "The <think> dog", None),
    (HM, "hm", DOG, None),
    (f" \n{HM}", "hm", DOG, None),
    ("<think></think>The dog", "", DOG, None),
    ("<think>\nhm", "hm", "", None),
    ("<think>\nhm", "hm", "", ()),
    (HM, "hm", DOG, ((22, 29),)),
)
# As a template wrote the beginning.
BEGUN_BY_TEMPLATE = (
    ("hm", "hm", "", ()),
    ("hm\n</think>\n\nThe dog", "hm", DOG, None),
    ("hm</think>The dog", "hm", DOG, ((10, 17),)),
)
SWITCHED_OFF = [(ENDINGS[2], BEGUN_BY_TEMPLATE[0]), (ENDINGS[2], BEGUN_BY_TEMPLATE[2])]


@pytest.mark.parametrize(
    ("ending", "begun"), [*product(ENDINGS, BEGUN), *product(ENDINGS[:2], BEGUN_BY_TEMPLATE), *SWITCHED_OFF]
)
def test_a_reply_goes_on_in_its_own_thought_or_in_none(
    thinkers: dict[str, LoadedModel], ending: str, begun: tuple[str, str, str, Any]
) -> None:
    text, thought, answer, spans = begun
    model = thinkers[ending]
    # Markers that the model wrote are known; a client's are not.
    own = () if spans is None else own_markers(text, begun="<think>" not in text)
    message = ChatMessage(Role.ASSISTANT, text, own, spans)
    params = SamplingParams(temperature=1.0, max_tokens=4)
    asked = GenerationRequest((ChatMessage(Role.USER, "Hi"), message), params, seed=2, continue_last=True)
    ids = model.encode_request(asked)
    written = model.decode(ids).partition("|")[2]
    assert written.endswith(text)
    assert written.removesuffix(text).count("<think>") + text.lstrip().startswith("<think>") <= 1
    told = split_thoughts(written)
    assert (told.thought, told.answer, told.open) == (thought, answer, not answer)
    markers = [token for token in ids if token in model.prompts.control and "think" in model.prompts.control[token]]
    typed = text.count("The <think>")
    assert len(markers) == written.count("<think>") + written.count("</think>") - typed
    events = [event for event in ChatSession(model).generate(asked) if isinstance(event, TokenEvent)]
    assert {piece.is_thought for event in events for piece in event.pieces} == {not answer}


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_thought_that_is_sent_beside_the_answer_stands_before_it(
    thinkers: dict[str, LoadedModel], ending: str
) -> None:
    message = ChatMessage(Role.ASSISTANT, "The dog", thought="hm </think>")
    asked = GenerationRequest((ChatMessage(Role.USER, "Hi"), message), SamplingParams(max_tokens=2), continue_last=True)
    model = thinkers[ending]
    ids = model.encode_request(asked)
    assert model.decode(ids).partition("|")[2] == "<think>\nhm </think>\n</think>\n\nThe dog"
    assert [model.prompts.control[each] for each in ids if each in model.prompts.control] == list(THINK)
    events = [event for event in ChatSession(model).generate(asked) if isinstance(event, TokenEvent)]
    assert not any(piece.is_thought for event in events for piece in event.pieces)
