"""The tower runs once for an image of a chat, also after a restart, an edit and another reply."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from rdchat.files.cache_folders import used_bytes
from rdchat.inference.api import (
    CacheFolder,
    ChatImage,
    ChatMessage,
    Dtype,
    GenerationRequest,
    ImageCap,
    ReplyEnd,
    Role,
    SamplingParams,
)
from rdchat.inference.loading import load_model
from rdchat.inference.local_engine import LocalEngine
from rdchat.inference.session import ChatSession
from rdchat.inference.vision.image_rows import ImageRows
from tests.inference.caches_on_disk.kept import PLENTY
from tests.inference.vision.seeing_chats import picture, seeing_folder

KINDS = ["qwen3_vl", "qwen3_5", "smolvlm", "gemma3"]


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count the runs of towers."""
    counted = Counter[str]()
    compute = ImageRows._compute

    def counting(rows: ImageRows, *arguments: object) -> object:
        counted["runs"] += 1
        return compute(rows, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(ImageRows, "_compute", counting)
    return counted


@pytest.fixture
def chat(tmp_path: Path) -> Path:
    folder = tmp_path / "chats" / "chat"
    folder.mkdir(parents=True)
    return folder


def asked(chat: Path | None, text: str, *images: ChatImage, limit: int = PLENTY) -> GenerationRequest:
    message = ChatMessage(Role.USER, text, images=images)
    keep = chat and CacheFolder(chat, limit)
    return GenerationRequest((message,), SamplingParams(max_tokens=4), keep=keep)


def reply(folder: Path, request: GenerationRequest) -> ReplyEnd:
    """Return a reply after a restart."""
    *_, end = ChatSession(load_model(folder, "float32")).generate(request)
    assert isinstance(end, ReplyEnd)
    return end


@pytest.mark.parametrize("kind", KINDS)
def test_the_tower_runs_once(kind: str, tmp_path: Path, chat: Path, runs: Counter[str]) -> None:
    folder = seeing_folder(tmp_path / "model", kind)
    image = picture(tmp_path, 40, 24)
    found = []
    for text in ("what?", "what?", "and now?"):
        expected = reply(folder, asked(None, text, image)).token_ids
        before = runs.total()
        end = reply(folder, asked(chat, text, image))
        assert end.token_ids == expected
        found.append(runs.total() - before)
        names = {entry.name for entry in end.statistics.ledger}
        assert ("tower" in names, "prepare an image" in names) == (bool(found[-1]),) * 2
    assert found == [1, 0, 0]
    assert used_bytes(chat.parent) > 0, "they count"


def test_other_settings_other_pixels_and_damage_are_seen_anew(tmp_path: Path, chat: Path, runs: Counter[str]) -> None:
    folder = seeing_folder(tmp_path / "model", "qwen3_vl")
    image = picture(tmp_path, 40, 24)
    request = asked(chat, "what?", image)
    expected = reply(folder, request).token_ids
    for other in (
        replace(request, image_cap=next(cap for cap in ImageCap if cap is not request.image_cap)),
        asked(chat, "what?", picture(tmp_path / "other", 40, 24, mirrored=True)),
    ):
        reply(folder, other)
    assert runs.total() == 3
    for path in chat.glob("*/*"):
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
    assert reply(folder, request).token_ids == expected
    assert runs.total() == 4


@pytest.mark.parametrize("why", ["no folder", "limit", "deleted"])
def test_nothing_is_kept(why: str, tmp_path: Path, chat: Path, runs: Counter[str]) -> None:
    folder = seeing_folder(tmp_path / "model", "qwen3_vl")
    image = picture(tmp_path, 40, 24)
    if why == "deleted":
        chat.rmdir()
    request = asked(None if why == "no folder" else chat, "what?", image, limit=0 if why == "limit" else PLENTY)
    reply(folder, request)
    reply(folder, request)
    assert runs.total() == 2
    assert not [path for path in chat.parent.rglob("*") if path.is_file()]


def test_an_engine_that_keeps_nothing_forgets_them(tmp_path: Path, runs: Counter[str]) -> None:
    engine = LocalEngine()
    engine.load(str(seeing_folder(tmp_path / "model", "qwen3_vl")), Dtype.AUTO, lambda _: None)
    request = asked(None, "what?", picture(tmp_path, 40, 24))
    list(engine.generate(request))
    engine.prefix_caches(1)
    list(engine.generate(request))
    assert runs.total() == 1
    assert engine.prefix_caches(0).count == 0
    list(engine.generate(request))
    assert runs.total() == 2
