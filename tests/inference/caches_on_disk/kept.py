"""Chats of small models whose KV caches are kept on disk, each turn in a new session as after a restart."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from rdchat.inference.api import (
    CacheFolder,
    ChatMessage,
    DraftSettings,
    FinishReason,
    GenerationRequest,
    Mode,
    ReplyEnd,
    Role,
)
from rdchat.inference.caches_on_disk import disk_caches, segments
from rdchat.inference.session import ChatSession
from rdchat.inference.verification.target import LoadedModel, PrefillPace
from tests.inference import fakes as models
from tests.inference.fakes import ask, reply_end, shared_family, shared_llama
from tests.inference.plain_replies import plain
from tests.inference.ready_drafters import ready_session, settings_of


def quick(make: Callable[[], LoadedModel]) -> LoadedModel:
    """Return a model that reads a prompt in few calls."""
    return replace(make(), pace=PrefillPace(64, 64, 64))


MODELS = {
    name: partial(quick, make)
    for name, make in (
        *models.MODELS.items(),
        ("a window longer than the chat", partial(shared_llama, sliding_window=400)),
        ("chunks", partial(shared_family, "llama4")),
        ("bfloat16", partial(shared_family, "gemma3", "bfloat16")),
    )
}
PLENTY = 2**30
TEXT = "a long text about apples and pears and what else grows on trees in the garden of a house"


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep short conversations too, in blocks of 16 tokens."""
    for module in (disk_caches, segments):
        monkeypatch.setattr(module, "ROWS", 16)
    monkeypatch.setattr(disk_caches, "_MIN_TOKENS", 20)
    monkeypatch.setattr(disk_caches, "_MIN_GAIN", 1)


@pytest.fixture
def chat_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "chats" / "chat"
    folder.mkdir(parents=True)
    return folder


def kept_request(folder: Path, prompt: str = TEXT, *, limit: int = PLENTY, **sampling: object) -> GenerationRequest:
    return replace(ask(prompt, **{"max_tokens": 6, **sampling}), keep=CacheFolder(folder, limit))


def whole(model: LoadedModel, request: GenerationRequest) -> GenerationRequest:
    """Return a request whose reply has no end token, which the small models' template does not write again."""
    *before, last = request.messages
    for number in range(100):
        longer = (*before, replace(last, content=f"{last.content} {'so' * number}"))
        changed = replace(request, seed=number, messages=longer)
        asked = replace(changed, keep=None, draft=DraftSettings(Mode.OFF), partition="")
        if plain(model, asked).finish_reason is FinishReason.LENGTH:
            return changed
    raise AssertionError("every reply has an end token")


def reply(model: LoadedModel, request: GenerationRequest, mode: Mode = Mode.OFF) -> ReplyEnd:
    """Return a reply of a new session, which keeps all of its cache, and check it against plain decoding."""
    session = ChatSession(model) if mode in {Mode.OFF, Mode.LOOKUP} else ready_session(model)
    end = reply_in(session, request, mode)
    session.disk.finish_writing(60)
    return end


def reply_in(session: ChatSession, request: GenerationRequest, mode: Mode = Mode.OFF) -> ReplyEnd:
    end = reply_end(session.generate(replace(request, draft=settings_of(mode))))
    expected = replace(request, draft=DraftSettings(Mode.OFF), keep=None, partition="")
    assert end.token_ids == plain(session.model, expected).token_ids
    return end


def next_turn(request: GenerationRequest, end: ReplyEnd, question: str = "more") -> GenerationRequest:
    said = ChatMessage(Role.ASSISTANT, end.text)
    return replace(request, messages=(*request.messages, said, ChatMessage(Role.USER, question)))


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*/*"))


def by_start(folder: Path) -> dict[int, Path]:
    """Return a file that has the rows from each position on."""
    named = ((segments.Segment.named(path.name), path) for path in files(folder))
    return {segment.start: path for segment, path in named if segment}
