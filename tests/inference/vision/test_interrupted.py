"""Replies to images that are paused for another chat, or end with the process, say what they would have said."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from rdchat.inference.api import (
    CacheFolder,
    ChatMessage,
    GenerationRequest,
    Mode,
    PrefillProgress,
    ReplyEnd,
    Role,
    SamplingParams,
)
from rdchat.inference.caches_on_disk import disk_caches, segments
from rdchat.inference.loading import load_model
from rdchat.inference.session import ChatSession
from rdchat.inference.verification.target import LoadedModel
from tests.inference.ready_drafters import ready_session, settings_of
from tests.inference.vision.seeing_chats import picture, seeing_folder

LONG = pytest.mark.slow
# Writes the caches of one reply after another, until it is killed.
_WRITER = """
import itertools, sys
from pathlib import Path
from tests.inference.vision.test_interrupted import ChatSession, about, disk_caches, load_model, segments
disk_caches.ROWS = segments.ROWS = 16
disk_caches._MIN_TOKENS = disk_caches._MIN_GAIN = 8
folder, place = map(Path, sys.argv[1:])
session = ChatSession(load_model(folder, "float32"))
for count in itertools.count(1):
    list(session.generate(about(place, count % 3 + 1, keep=True)))
    session.disk.finish_writing(10.0)
    print("stored", flush=True)
"""


def about(place: Path, images: int, mode: Mode = Mode.OFF, *, keep: bool = False) -> GenerationRequest:
    """Return a question about some images, which are stored in a folder."""
    seen = tuple(picture(place / str(number), 40 - 8 * number, 24 + 8 * number) for number in range(images))
    chat = place / "chat"
    chat.mkdir(exist_ok=True)
    sampling = SamplingParams(temperature=0.9, max_tokens=12)
    message = ChatMessage(Role.USER, "one two " * 8, images=seen)
    kept = CacheFolder(chat, 2**30) if keep else None
    return GenerationRequest((message,), sampling, 7, draft=settings_of(mode), keep=kept)


def ids_of(model: LoadedModel, request: GenerationRequest) -> list[int]:
    *_, end = ChatSession(model).generate(replace(request, draft=settings_of(Mode.OFF), keep=None))
    assert isinstance(end, ReplyEnd)
    return list(end.token_ids)


@pytest.mark.parametrize(
    "kind", ["smolvlm", *(pytest.param(each, marks=LONG) for each in ("qwen3_vl", "gemma3", "lfm2_vl"))]
)
@pytest.mark.parametrize("mode", [Mode.LOOKUP, Mode.DRAFTER])
def test_a_reply_that_is_paused_for_another_image_is_the_same(kind: str, mode: Mode, tmp_path: Path) -> None:
    model = load_model(seeing_folder(tmp_path / "model", kind), "float32")
    asked = about(tmp_path, 2, mode)
    other = replace(about(tmp_path, 1, mode), partition="person")
    expected = ids_of(model, asked)
    between = ids_of(model, other)
    session = ready_session(model, model)
    end = None
    starts = 0
    running = session.generate(asked)
    for event in running:
        starts += isinstance(event, PrefillProgress) and event.images > 0
        if isinstance(event, ReplyEnd):
            end = event
            continue
        with running.paused():
            *_, inner = session.generate(other)
        assert isinstance(inner, ReplyEnd)
        assert list(inner.token_ids) == between
    assert end is not None
    assert list(end.token_ids) == expected
    assert starts == 2, "another chat comes before each image"


@pytest.mark.slow
def test_a_killed_process_leaves_caches_that_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (disk_caches, segments):
        monkeypatch.setattr(module, "ROWS", 16)
    for name in ("_MIN_TOKENS", "_MIN_GAIN"):
        monkeypatch.setattr(disk_caches, name, 8)
    folder = seeing_folder(tmp_path / "model", "qwen3_vl")
    model = load_model(folder, "float32")
    found = 0
    for kills in range(1, 4):
        with subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(folder), str(tmp_path)], stdout=subprocess.PIPE, text=True
        ) as writer:
            assert writer.stdout is not None
            for _ in range(kills):
                assert writer.stdout.readline() == "stored\n"
            writer.kill()
        for count in (1, 3):
            asked = about(tmp_path, count, keep=True)
            *_, end = ChatSession(model).generate(asked)
            assert isinstance(end, ReplyEnd)
            assert list(end.token_ids) == ids_of(model, asked)
            found += end.statistics.disk_prompt_tokens
    assert found > 0
