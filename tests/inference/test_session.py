"""Turns of a chat: only what is new is read, and what a reply says never depends on what the cache held."""

from collections.abc import Callable

import pytest

from rdchat.inference.api import (
    ChatMessage,
    DraftSettings,
    GenerationRequest,
    Mode,
    ReplyEnd,
    Role,
    SamplingParams,
    TokenEvent,
    TokenIterator,
)
from rdchat.inference.session import ChatSession
from tests.grids import grid
from tests.inference.fakes import positions, reply_end, tiny_llama

pytestmark = pytest.mark.across_rows

USER = Role.USER
ASSISTANT = Role.ASSISTANT
SYSTEM = Role.SYSTEM


def request(
    *turns: tuple[Role, str], seed: int = 3, continue_last: bool = False, **sampling: object
) -> GenerationRequest:
    options = {"max_tokens": 12, "temperature": 1.0, **sampling}
    messages = tuple(ChatMessage(role, text) for role, text in turns)
    params = SamplingParams(**options)  # type: ignore[arg-type]
    plain = DraftSettings(Mode.OFF)
    return GenerationRequest(messages, params, seed, continue_last=continue_last, draft=plain)


def reply(session: ChatSession, asked: GenerationRequest) -> ReplyEnd:
    end = reply_end(session.generate(asked))
    assert positions(session.cache) == len(session.cache.tokens)
    return end


def test_second_turn_prefills_only_the_new_tokens() -> None:
    session = ChatSession(tiny_llama())
    first = reply(session, request((USER, "hello"), max_tokens=5))
    held = len(session.cache.tokens)
    second = reply(session, request((USER, "hello"), (ASSISTANT, first.text), (USER, "more"), max_tokens=5))
    assert second.statistics.cached_prompt_tokens == held
    assert second.statistics.prompt_tokens == held + len("\nuser: more\nassistant: ") + 1  # the last token was not fed


def stop_after(count: int, act: Callable[[TokenIterator], None]) -> Callable[[TokenIterator], None]:
    def run(iterator: TokenIterator) -> None:
        for event in iterator:
            if isinstance(event, TokenEvent) and event.index == count:
                act(iterator)
                return

    return run


ENDS = {
    "closed before it began": lambda iterator: iterator.close(),
    "closed during prefill": lambda iterator: (next(iterator), next(iterator), iterator.close()),
    "closed while writing": stop_after(3, lambda iterator: iterator.close()),
    "closed twice": stop_after(3, lambda iterator: (iterator.close(), iterator.close())),
    "cancelled": stop_after(3, lambda iterator: (iterator.cancel(), list(iterator))),
    "forgotten": stop_after(3, lambda iterator: None),
    "read to its end": list,
}


@pytest.mark.parametrize(("name", "window"), grid(list(ENDS), [None, 10]))
def test_after_every_kind_of_end_the_next_reply_is_what_a_fresh_session_says(name: str, window: int | None) -> None:
    model = tiny_llama(sliding_window=window)
    session = ChatSession(model)
    ENDS[name](session.generate(request((USER, "one two three four"))))
    following = request((USER, "one two three four"), (ASSISTANT, "five"), (USER, "six"))
    assert reply(session, following).token_ids == reply(ChatSession(model), following).token_ids


def test_a_reply_is_continued_as_it_stands_whatever_a_template_makes_of_thoughts() -> None:
    """Like Qwen3's, which drops the thoughts of earlier replies and opens a new one with a thought."""
    model = tiny_llama()

    def like_qwen(turns: list[dict[str, str]], add_generation_prompt: bool, **_options: bool) -> str:
        text = "".join(f"{turn['role']}: {turn['content'].split('done')[-1]}\n" for turn in turns)
        return text + ("assistant: think " if add_generation_prompt else "")

    model.tokenizer.apply_chat_template = like_qwen
    unfinished = "well. done the answer "
    asked = request(
        (USER, "one"), (ASSISTANT, "hm. done two"), (USER, "three"), (ASSISTANT, unfinished), continue_last=True
    )
    prompt = model.decode(model.encode_chat(asked.messages, True))
    assert prompt == "user: one\nassistant:  two\nuser: three\nassistant: think " + unfinished
    first = reply(ChatSession(model), request((USER, "one"), temperature=0, max_tokens=20))
    part = first.text[:9]
    rest = reply(
        ChatSession(model),
        request((USER, "one"), (ASSISTANT, part), continue_last=True, temperature=0, max_tokens=11),
    )
    assert part + rest.text == first.text
