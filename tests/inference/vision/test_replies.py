"""Replies to images: the same text in every mode, and only what is new is read and seen."""

from dataclasses import replace
from pathlib import Path

import pytest

from rdchat.inference.api.events import ReplyEnd
from rdchat.inference.api.images import ChatImage
from rdchat.inference.api.messages import ChatMessage, Role, ToolCall
from rdchat.inference.api.requests import DraftSettings, GenerationRequest, Mode, SamplingParams
from rdchat.inference.loading import load_model
from rdchat.inference.session import ChatSession
from rdchat.inference.verification.target import LoadedModel
from tests.inference.vision.seeing_chats import picture, seeing_folder

KINDS = ("smolvlm", "qwen3_5", "qwen3_vl", "gemma3")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, LoadedModel]:
    place = tmp_path_factory.mktemp("seeing")
    return {kind: load_model(seeing_folder(place / kind, kind), "float32") for kind in KINDS}


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> list[ChatImage]:
    place = tmp_path_factory.mktemp("images")
    return [picture(place / str(number), 40 - 8 * number, 24 + 8 * number) for number in range(3)]


def asked(*messages: ChatMessage, mode: Mode = Mode.OFF, temperature: float = 0.0) -> GenerationRequest:
    sampling = SamplingParams(temperature=temperature, max_tokens=12)
    return GenerationRequest(messages, sampling, 7, draft=DraftSettings(mode))


def answer(session: ChatSession, request: GenerationRequest) -> ReplyEnd:
    *_, end = session.generate(request)
    assert isinstance(end, ReplyEnd)
    assert end.mode is request.draft.mode, end.mode_reason
    return end


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_prompt_lookup_changes_no_token(
    kind: str, temperature: float, models: dict[str, LoadedModel], images: list[ChatImage]
) -> None:
    model = models[kind]
    for seen in (images[:1], images):
        message = ChatMessage(Role.USER, "what is this? what is this?", images=tuple(seen))
        plain = answer(ChatSession(model), asked(message, temperature=temperature))
        drafted = answer(ChatSession(model), asked(message, temperature=temperature, mode=Mode.LOOKUP))
        assert drafted.token_ids == plain.token_ids
        blind = answer(ChatSession(model), asked(replace(message, images=()), temperature=temperature))
        assert blind.token_ids != plain.token_ids or temperature == 0


@pytest.mark.parametrize("kind", [each for each in KINDS if each != "qwen3_5"])
def test_a_further_turn_reads_only_what_is_new(
    kind: str, models: dict[str, LoadedModel], images: list[ChatImage]
) -> None:
    model = models[kind]
    session, question = ChatSession(model), ChatMessage(Role.USER, "what?", images=(images[0],))
    first = answer(session, asked(question))
    turns = (
        question,
        ChatMessage(Role.ASSISTANT, first.text),
        ChatMessage(Role.USER, "and this?", images=(images[1],)),
    )
    second = answer(session, asked(*turns))
    assert second.statistics.cached_prompt_tokens >= first.statistics.prompt_tokens
    assert second.token_ids == answer(ChatSession(model), asked(*turns)).token_ids


@pytest.mark.parametrize("kind", [each for each in KINDS if each != "qwen3_5"])
def test_another_image_of_the_same_size_is_no_hit(
    kind: str, models: dict[str, LoadedModel], images: list[ChatImage], tmp_path: Path
) -> None:
    session = ChatSession(models[kind])
    first = answer(session, asked(ChatMessage(Role.USER, "what?", images=(images[0],))))
    other = replace(images[0], digest="0" * 64)
    again = answer(session, asked(ChatMessage(Role.USER, "what?", images=(other,))))
    before = first.statistics.prompt_tokens - 1
    assert again.statistics.cached_prompt_tokens < before / 2
    copied = picture(tmp_path / "other", 40, 24)
    assert copied.digest == images[0].digest
    again = answer(session, asked(ChatMessage(Role.USER, "what?", images=(copied,))))
    assert again.statistics.cached_prompt_tokens == before, "the same file elsewhere is the same image"


def test_a_model_that_does_not_see_gets_a_line(small_model: Path, images: list[ChatImage]) -> None:
    model = load_model(small_model)
    message = ChatMessage(Role.USER, "What is it?", images=(images[0],))
    text = model.decode(model.encode_chat((message,), continue_last=False))
    assert "(an image that this model cannot see)" in text
    assert text.index("(an image") < text.index("What is it?")


def test_an_image_in_a_result_of_a_tool_is_seen(models: dict[str, LoadedModel], images: list[ChatImage]) -> None:
    call = ChatMessage(Role.ASSISTANT, "", tool_calls=(ToolCall("look", "{}", "c1"),))
    result = ChatMessage(Role.TOOL, "so", tool_call_id="c1", images=(images[0],))
    turns, model = (ChatMessage(Role.USER, "look."), call), models["smolvlm"]
    seen = answer(ChatSession(model), asked(*turns, result)).statistics.prompt_tokens
    blind = answer(ChatSession(model), asked(*turns, replace(result, images=()))).statistics.prompt_tokens
    assert seen - blind >= 16
