"""Replies to images: the same text in every mode, also if interrupted, and only what is new is read and seen."""

import hashlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from rdchat.errors import ImageRefusedError
from rdchat.inference.api import (
    DRAFTERS,
    CacheFolder,
    ChatImage,
    ChatMessage,
    FinishReason,
    GenerationRequest,
    Mode,
    PrefillProgress,
    ReplyEnd,
    Role,
    SamplingParams,
    ToolCall,
    without_images,
)
from rdchat.inference.caches_on_disk import disk_caches, segments
from rdchat.inference.drafting.reply_index import ReplyIndex
from rdchat.inference.loading import load_model
from rdchat.inference.session import ChatSession
from rdchat.inference.verification.target import LoadedModel
from rdchat.inference.vision import image_rows
from scripts.seeing.drawings import drawing
from scripts.seeing.make_folder import make_folder
from tests.grids import grid, share
from tests.inference.drafting.heads.assistant_targets import assistant_folder
from tests.inference.ready_drafters import ready_session, settings_of
from tests.inference.vision.seeing_models import KINDS, picture, seeing_folder

HEADER = "\n<|im_start|>assistant\n"
"""Stands between the end token of a question and its reply."""


class GoldenModels(dict[str, LoadedModel]):
    """Loads the model of a kind when it is first needed."""

    def __init__(self, place: Path) -> None:
        super().__init__()
        self.place = place

    def __missing__(self, kind: str) -> LoadedModel:
        self[kind] = load_model(seeing_folder(self.place / kind, kind), "float32")
        return self[kind]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, LoadedModel]:
    return GoldenModels(tmp_path_factory.mktemp("seeing"))


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> list[ChatImage]:
    place = tmp_path_factory.mktemp("images")
    return [picture(place / str(number), 40 - 8 * number, 24 + 8 * number) for number in range(3)]


def asked(
    *messages: ChatMessage, mode: Mode = Mode.OFF, temperature: float = 0.0, max_tokens: int = 12
) -> GenerationRequest:
    sampling = SamplingParams(temperature=temperature, max_tokens=max_tokens)
    return GenerationRequest(messages, sampling, 7, draft=settings_of(mode))


def answer(session: ChatSession, request: GenerationRequest) -> ReplyEnd:
    *_, end = session.generate(request)
    assert isinstance(end, ReplyEnd)
    assert end.mode is request.draft.mode, end.mode_reason
    return end


@pytest.mark.parametrize(("kind", "temperature"), grid(KINDS, [0.0, 0.9], one_in=9))
def test_no_mode_changes_a_token(
    kind: str, temperature: float, models: dict[str, LoadedModel], images: list[ChatImage]
) -> None:
    model = models[kind]
    message = ChatMessage(Role.USER, "what is this? what is this?", images=tuple(images))
    plain_request = asked(message, temperature=temperature, max_tokens=10)
    plain = answer(ChatSession(model), plain_request)
    for mode in (*DRAFTERS, Mode.AUTO):
        drafted = answer(ready_session(model, model), replace(plain_request, draft=settings_of(mode)))
        assert drafted.token_ids == plain.token_ids, mode
    blind = answer(ChatSession(model), replace(plain_request, messages=(replace(message, images=()),)))
    assert blind.token_ids != plain.token_ids or temperature == 0


DECIDES = {
    "messages", "sampling", "seed", "continue_last", "thinking", "text", "tools", "shape", "thinking_tokens",
    "image_cap",
}  # fmt: skip
"""The fields of a request that a reply depends on: each other one changes no token, with images as without."""


def same_replies(request: GenerationRequest, place: Path, reply: tuple[int, ...]) -> Iterator[GenerationRequest]:
    """Yield requests of the same reply: each field but those that decide it has another value in some of them."""
    folder = CacheFolder(place, 2**30)
    folder.path.mkdir(parents=True)
    beginning = (replace(request.messages[0], content=request.messages[0].content[:4]),)
    others: dict[str, list[object]] = {
        "request_id": [9],
        "draft": [replace(settings_of(mode), trace=True, profile=True) for mode in (*DRAFTERS, Mode.AUTO)],
        "earlier": [ReplyIndex({1: reply})],
        "top_log_probs": [0, 3],
        "partition": ["person"],
        "keep": [folder, folder],
        "shared": [beginning],
        "leaves_cache": [False],
    }
    assert DECIDES.symmetric_difference(others) == {field.name for field in fields(request)}, "sort the new field"
    for name, values in others.items():
        for value in values:
            changed = replace(request, **{name: value})
            yield replace(changed, draft=settings_of(Mode.LOOKUP)) if name == "earlier" else changed


@pytest.mark.parametrize("kind", share(KINDS, 8))
def test_what_is_kept_and_drafted_changes_no_token(
    kind: str, models: dict[str, LoadedModel], images: list[ChatImage], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law: no row, no read. An image in a request that leaves no cache ended the process."""
    monkeypatch.setattr(disk_caches, "_MIN_TOKENS", 8)
    model = models[kind]
    for count in (0, 2):
        message = ChatMessage(Role.USER, "what is this? what is this?", images=tuple(images[:count]))
        request = asked(message, temperature=0.9, max_tokens=8)
        expected = answer(ChatSession(model), request).token_ids
        session = ready_session(model, model, cache_bytes=2**30)
        for other in same_replies(request, tmp_path / str(count), expected):
            kept = session.caches.facts
            assert answer(ready_session(model, model), other).token_ids == expected, other
            assert answer(session, other).token_ids == expected, other
            assert other.leaves_cache or session.caches.facts == kept
            while session.disk.write_next():
                pass


@pytest.mark.parametrize(("kind", "temperature"), grid(["gemma4", "gemma4_e"], [0.9, 0.0]))
def test_an_assistant_changes_no_token(
    kind: str, temperature: float, models: dict[str, LoadedModel], images: list[ChatImage], tmp_path: Path
) -> None:
    """It reads the model's own keys and values, those of images among them."""
    folder = assistant_folder(tmp_path / "assistant", text={"vocab_size": 96, "sliding_window": 12})
    message = ChatMessage(Role.USER, "what is this? what is this?", images=tuple(images))
    request = asked(message, temperature=temperature, max_tokens=10)
    plain = answer(ChatSession(models[kind]), request)
    draft = replace(settings_of(Mode.DRAFTER), drafter=str(folder))
    assert answer(ChatSession(models[kind]), replace(request, draft=draft)).token_ids == plain.token_ids


@pytest.mark.parametrize("kind", share(KINDS))
def test_a_further_turn_reads_only_what_is_new(
    kind: str, models: dict[str, LoadedModel], images: list[ChatImage]
) -> None:
    check_further_turn(models[kind], images, HEADER)


@pytest.mark.parametrize("kind", ["qwen3_5", "lfm2_vl"])
def test_a_further_turn_behind_a_thought_that_the_template_drops(
    kind: str, images: list[ChatImage], tmp_path: Path
) -> None:
    """It opens a thought for the reply, and writes no thought of a reply that is over."""
    folder = seeing_folder(tmp_path / kind, kind)
    template = folder / "chat_template.jinja"
    opened = template.read_text().replace("<|im_start|>assistant\n", "<|im_start|>assistant\n<think>\n")
    template.write_text(opened)
    check_further_turn(load_model(folder, "float32"), images, HEADER + "<think>\n")


def _encoded(model: LoadedModel, text: str) -> list[int]:
    return list(model.tokenizer.encode(text, add_special_tokens=False))


def check_further_turn(model: LoadedModel, images: list[ChatImage], header: str) -> None:
    """Check that a second turn reads no more of the first prompt than what opened the reply."""
    session = ChatSession(model)
    question = ChatMessage(Role.USER, "what is this? what is this? what is this?", images=(images[0],))
    first = answer(session, asked(question))
    turns = (
        question,
        ChatMessage(Role.ASSISTANT, first.text),
        ChatMessage(Role.USER, "and this?", images=(images[1],)),
    )
    second = answer(session, asked(*turns))
    least = first.statistics.prompt_tokens - len(_encoded(model, header)) * session.cache.has_state
    assert second.statistics.cached_prompt_tokens >= least
    assert second.token_ids == answer(ChatSession(model), asked(*turns)).token_ids


@pytest.mark.parametrize("kind", share(KINDS))
def test_another_image_of_the_same_size_is_no_hit(
    kind: str, models: dict[str, LoadedModel], images: list[ChatImage], tmp_path: Path
) -> None:
    session = ChatSession(models[kind], cache_bytes=2**30)
    first = answer(session, asked(ChatMessage(Role.USER, "what?", images=(images[0],)), max_tokens=2))
    other = replace(images[0], digest="0" * 64)
    again = answer(session, asked(ChatMessage(Role.USER, "what?", images=(other,)), max_tokens=2))
    before = first.statistics.prompt_tokens - 1
    assert again.statistics.cached_prompt_tokens < before / 2
    copied = picture(tmp_path / "other", 40, 24)
    assert copied.digest == images[0].digest
    again = answer(session, asked(ChatMessage(Role.USER, "what?", images=(copied,)), max_tokens=2))
    kept = before - (len(_encoded(models[kind], HEADER)) - 1) * session.cache.has_state
    assert again.statistics.cached_prompt_tokens == kept, "the same file elsewhere is the same image"


@pytest.mark.parametrize("kind", share(KINDS))
def test_edits_and_another_reply_are_those_of_a_new_chat(
    kind: str, models: dict[str, LoadedModel], images: list[ChatImage]
) -> None:
    """The cache is trimmed before, behind and between images."""
    model = models[kind]
    session = ChatSession(models[kind], cache_bytes=2**30)
    first = ChatMessage(Role.USER, "one", images=(images[0],))
    said = ChatMessage(Role.ASSISTANT, "two")
    for last in (
        ChatMessage(Role.USER, "three", images=(images[1], images[2])),
        ChatMessage(Role.USER, "three", images=(images[1], images[0])),
        ChatMessage(Role.USER, "three and more", images=(images[1],)),
        ChatMessage(Role.USER, "three and less", images=(images[1],)),
        ChatMessage(Role.USER, "none"),
    ):
        expected = answer(ChatSession(model), asked(first, said, last, temperature=0.9)).token_ids
        for _ in range(2):
            assert answer(session, asked(first, said, last, temperature=0.9)).token_ids == expected
    assert answer(session, asked(first)).token_ids == answer(ChatSession(model), asked(first)).token_ids


@pytest.mark.parametrize("kind", share(KINDS))
def test_a_cache_on_disk_has_the_images(
    kind: str, models: dict[str, LoadedModel], images: list[ChatImage], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_caches, "_MIN_TOKENS", 8)
    model = models[kind]
    folder = CacheFolder(tmp_path / "chat", 2**30)
    folder.path.mkdir()
    turns = [ChatMessage(Role.USER, "one " * (10 if kind == "smolvlm" else 30), images=tuple(images))]
    request = replace(asked(*turns), keep=folder)
    session = ChatSession(model)
    first = answer(session, request)
    session.disk.finish_writing(10.0)
    turns += [ChatMessage(Role.ASSISTANT, first.text), ChatMessage(Role.USER, "more")]
    again = answer(ChatSession(model), replace(asked(*turns), keep=folder))
    assert again.statistics.disk_prompt_tokens > 0
    assert again.token_ids == answer(ChatSession(model), asked(*turns)).token_ids


def test_cancelling_ends_the_reading_of_an_image(models: dict[str, LoadedModel], images: list[ChatImage]) -> None:
    session = ChatSession(models["smolvlm"])
    events = session.generate(asked(ChatMessage(Role.USER, "one", images=tuple(images))))
    events.cancel()
    *_, end = events
    assert isinstance(end, ReplyEnd)
    assert end.finish_reason is FinishReason.CANCELLED


def test_a_placeholder_that_somebody_wrote_is_text(models: dict[str, LoadedModel], images: list[ChatImage]) -> None:
    model = models["qwen3_vl"]
    own = ChatMessage(Role.ASSISTANT, "a<|image_pad|>b", own_control=(1,))
    typed = ChatMessage(Role.USER, "is <|image_pad|> a word?", images=(images[0],))
    ids = model.encode_chat((ChatMessage(Role.USER, "one"), own, typed))
    assert model.decode(ids).count("<|image_pad|>") == 0 or 90 not in ids
    assert sum(token < 0 for token in ids) == 15


def test_an_image_in_a_result_of_a_tool_is_seen(models: dict[str, LoadedModel], images: list[ChatImage]) -> None:
    call = ChatMessage(Role.ASSISTANT, "", tool_calls=(ToolCall("look", "{}", "c1"),))
    result = ChatMessage(Role.TOOL, "so", tool_call_id="c1", images=(images[0],))
    turns = (ChatMessage(Role.USER, "look."), call)
    model = models["smolvlm"]
    seen = answer(ChatSession(model), asked(*turns, result, max_tokens=1)).statistics.prompt_tokens
    blind_turns = (*turns, replace(result, images=()))
    blind = answer(ChatSession(model), asked(*blind_turns, max_tokens=1)).statistics.prompt_tokens
    assert seen - blind >= 16


@pytest.mark.parametrize("harm", ["file", "tower"])
def test_an_image_that_fails_becomes_a_note(
    harm: str, tmp_path: Path, images: list[ChatImage], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each later reply of the chat failed too."""
    model = load_model(seeing_folder(tmp_path / "model", "qwen3_5"), "float32")
    broken = tmp_path / "broken.png"
    broken.write_bytes(images[0].path.read_bytes()[:-40])
    bad = replace(images[0], path=broken, digest="broken")
    seen = (images[1], bad) if harm == "file" else (bad, images[0])
    if harm == "tower":
        monkeypatch.setitem(image_rows.TOWERS, "qwen", lambda *_: {}["missing"])
    request = asked(ChatMessage(Role.USER, "what is this", images=seen))
    session = ChatSession(model)
    for _ in range(1 if harm == "file" else 2):
        with pytest.raises(ImageRefusedError, match="damaged") as caught:
            answer(session, request)
        assert "a line of text in its place" in caught.value.hint
    written = answer(session, request).text
    kept = (images[1],) if harm == "file" else ()
    noted = without_images(request.messages, lambda image: image not in kept)
    assert written == answer(ChatSession(model), asked(*noted)).text


# Writes the caches of one reply after another, until it is killed, and says when a file is about to be complete.
_WRITER = """
import itertools, sys
from pathlib import Path
from tests.inference.vision.test_replies import ChatSession, about, disk_caches, load_model, segments
disk_caches.ROWS = segments.ROWS = 16
disk_caches._MIN_TOKENS = disk_caches._MIN_GAIN = 8
folder, place = map(Path, sys.argv[1:])
session = ChatSession(load_model(folder, "float32"))
def note(event, arguments):
    if event == "os.rename" and str(arguments[1]).startswith(str(place / "chat")):
        print("writes", flush=True)
sys.addaudithook(note)
for count in itertools.count(1):
    list(session.generate(about(place, count % 3 + 1, keep=True)))
    session.disk.finish_writing(10.0)
"""


def about(place: Path, images: int, mode: Mode = Mode.OFF, *, keep: bool = False) -> GenerationRequest:
    """Return a question about some images, which are stored in a folder."""
    seen = tuple(picture(place / str(number), 40 - 8 * number, 24 + 8 * number) for number in range(images))
    chat = place / "chat"
    chat.mkdir(exist_ok=True)
    request = asked(ChatMessage(Role.USER, "one two " * 8, images=seen), mode=mode, temperature=0.9, max_tokens=10)
    return replace(request, keep=CacheFolder(chat, 2**30) if keep else None)


def ids_of(model: LoadedModel, request: GenerationRequest) -> tuple[int, ...]:
    return answer(ChatSession(model), replace(request, draft=settings_of(Mode.OFF), keep=None)).token_ids


@pytest.mark.parametrize(
    ("kind", "mode"), grid(["smolvlm", "qwen3_vl", "gemma3", "lfm2_vl"], [Mode.LOOKUP, Mode.DRAFTER], one_in=8)
)
def test_a_reply_that_is_paused_for_another_image_is_the_same(kind: str, mode: Mode, tmp_path: Path) -> None:
    model = load_model(seeing_folder(tmp_path / "model", kind), "float32")
    request = about(tmp_path, 2, mode)
    other = replace(
        about(tmp_path, 1, mode), partition="person", sampling=SamplingParams(temperature=0.9, max_tokens=2)
    )
    expected = ids_of(model, request)
    between = ids_of(model, other)
    session = ready_session(model, model)
    end = None
    starts = 0
    running = session.generate(request)
    for event in running:
        starts += isinstance(event, PrefillProgress) and event.images > 0
        if isinstance(event, ReplyEnd):
            end = event
            continue
        with running.paused():
            *_, inner = session.generate(other)
        assert isinstance(inner, ReplyEnd)
        assert inner.token_ids == between
    assert end is not None
    assert end.token_ids == expected
    assert starts == 2, "another chat comes before each image"


@pytest.mark.slow
def test_a_killed_process_leaves_caches_that_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (disk_caches, segments):
        monkeypatch.setattr(module, "ROWS", 16)
    for name in ("_MIN_TOKENS", "_MIN_GAIN"):
        monkeypatch.setattr(disk_caches, name, 8)
    folder = seeing_folder(tmp_path / "model", "qwen3_vl")
    places = [tmp_path / str(number) for number in range(8)]
    command = [sys.executable, "-c", _WRITER, str(folder), str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer, ExitStack() as ending:
        ending.callback(writer.kill)
        assert writer.stdout is not None
        for place in places:
            assert writer.stdout.readline() == "writes\n"
            # What a process leaves that is stopped here is what it would leave if it were killed.
            writer.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, writer.pid, os.WSTOPPED)
            shutil.copytree(tmp_path / "chat", place / "chat")
            writer.send_signal(signal.SIGCONT)
    model = load_model(folder, "float32")
    found = 0
    for place in places:
        for count in (2, 3):
            request = about(place, count, keep=True)
            end = answer(ChatSession(model), request)
            assert end.token_ids == ids_of(model, request)
            found += end.statistics.disk_prompt_tokens
    assert found > 0


# Not one that training draws with.
SEED = 20261


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, default_model_folder: Path) -> LoadedModel:
    folder = tmp_path_factory.mktemp("seeing") / "model"
    make_folder(folder, default_model_folder)
    return load_model(folder, "float32")


def drawings(place: Path, count: int) -> Iterator[tuple[ChatImage, str]]:
    """Store drawings of several sizes as PNG and JPEG, and return each with its sentence."""
    random = np.random.default_rng(SEED)
    for number in range(count):
        side = (64, 100, 256)[number % 3]
        pixels, caption = drawing(random, side)
        path = place / f"drawing {number}.{('png', 'jpg')[number % 2]}"
        Image.fromarray(pixels).save(path, quality=90)
        yield ChatImage(path, hashlib.sha256(path.read_bytes()).hexdigest(), side, side, path.name), caption


def described(session: ChatSession, image: ChatImage) -> str:
    """Return what a model says of a picture."""
    message = ChatMessage(Role.USER, "Describe the picture in one sentence.", images=(image,))
    return answer(session, asked(message, max_tokens=20)).text


@pytest.mark.slow
@pytest.mark.timeout(1800)  # a drawing takes ten seconds and more
def test_it_is_nearly_always_right(model: LoadedModel, tmp_path: Path) -> None:
    session = ChatSession(model)
    wrong = list[str]()
    count = 12  # each size in both formats, twice
    for image, caption in drawings(tmp_path, count):
        said = described(session, image)
        if said != caption:
            wrong.append(f"{said} | {caption}")
    assert len(wrong) < 0.1 * count, wrong
