"""What the engine does for the server, on the real default model."""

from dataclasses import replace

import pytest

from rdchat.inference.api.events import FinishReason, ReplyEnd, TokenEvent
from rdchat.inference.api.requests import ChatMessage, DraftSettings, GenerationRequest, Mode, Role, SamplingParams
from rdchat.inference.session import ChatSession
from rdchat.inference.target.target import LoadedModel
from tests.e2e.model_replies import reply

pytestmark = [pytest.mark.slow, pytest.mark.across_rows]

GREEDY = SamplingParams(temperature=0, max_tokens=12)


def ask(*texts: str, **options: object) -> GenerationRequest:
    roles = (Role.USER, Role.ASSISTANT)
    messages = tuple(ChatMessage(roles[place % 2], text) for place, text in enumerate(texts))
    return GenerationRequest(messages, GREEDY, draft=DraftSettings(Mode.LOOKUP), **options)  # type: ignore[arg-type]


def test_turns_of_two_interleaved_conversations_read_only_what_is_new(model: LoadedModel) -> None:
    session = ChatSession(model, cache_bytes=2**30)
    chats = {owner: ask(f"Name a {owner}. " * 20, partition=owner) for owner in ("fruit", "colour")}
    held = dict.fromkeys(chats, 0)
    for _ in range(3):
        for owner, asked in chats.items():
            end = reply(session, asked)
            assert end.statistics.cached_prompt_tokens == held[owner]
            assert end.token_ids == reply(ChatSession(model), asked).token_ids
            held[owner] = len(session.cache.tokens)
            turns = (ChatMessage(Role.ASSISTANT, end.text), ChatMessage(Role.USER, "And another?"))
            chats[owner] = replace(asked, messages=(*asked.messages, *turns))
    facts = session.caches.facts
    assert facts.count == 2
    assert facts.held_bytes > 2 * 100 * 23_040, "keys and values of float32 in 30 layers of 3 heads of 64"


def test_a_text_is_continued_without_a_template(model: LoadedModel) -> None:
    asked = GenerationRequest((), GREEDY, draft=DraftSettings(Mode.OFF), text="The capital of France is")
    end = reply(ChatSession(model), asked)
    assert end.statistics.prompt_tokens == len(model.tokenizer.encode("The capital of France is"))
    assert "Paris" in end.text


def test_the_bytes_of_tokens_are_those_of_the_text(model: LoadedModel) -> None:
    asked = replace(ask("Repeat these signs: 🦔🦊 漢字 ✈"), draft=DraftSettings(Mode.OFF), top_log_probs=5)
    *events, end = ChatSession(model).generate(asked)
    assert isinstance(end, ReplyEnd)
    tokens = [event for event in events if isinstance(event, TokenEvent)]
    if end.finish_reason is FinishReason.EOS:
        tokens.pop()
    said = b"".join(event.data for event in tokens).decode(errors="ignore")
    assert said.lstrip() == end.text.lstrip()
    for event in tokens:
        assert event.alternatives[0].token_id == event.token_id
        assert event.alternatives[0].log_prob == pytest.approx(event.log_prob, abs=1e-4)
        assert len(event.alternatives) == 5
    for text in ("🦔", "漢", "é"):
        ids = model.tokenizer.encode(text, add_special_tokens=False)
        assert b"".join(model.token_data(token) for token in ids).decode() == text
