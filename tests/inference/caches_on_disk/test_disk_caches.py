"""KV caches on disk: after a restart a chat goes on with them, and its text is the same."""

import os
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from _pytest.logging import LogCaptureFixture

from rdchat.files.cache_folders import remove_folder, used_bytes
from rdchat.inference import local_engine
from rdchat.inference.api import CacheFolder, ChatMessage, GenerationRequest, Mode, Role, StoppedError
from rdchat.inference.caches_on_disk import disk_caches
from rdchat.inference.caches_on_disk.segments import Segment
from rdchat.inference.local_engine import LocalEngine
from rdchat.inference.session import ChatSession
from rdchat.inference.verification import kv_cache
from rdchat.inference.verification.round_cache import UnsupportedCacheError
from rdchat.inference.verification.target import LoadedModel
from tests.disks import small_disk
from tests.grids import grid, pairs, share
from tests.inference.caches_on_disk.kept import (
    MODELS,
    PLENTY,
    TEXT,
    by_start,
    files,
    kept_request,
    next_turn,
    reply,
    reply_in,
    whole,
)
from tests.inference.plain_replies import plain
from tests.inference.threads import load_silently, on_a_thread

pytestmark = [pytest.mark.across_rows, pytest.mark.usefixtures("small_blocks")]


@pytest.mark.parametrize(("name", "mode", "temperature"), share(pairs(MODELS, Mode, [0.0, 0.9]), one_in=6))
def test_a_chat_goes_on_after_each_restart(name: str, mode: Mode, temperature: float, chat_folder: Path) -> None:
    model = MODELS[name]()
    request = kept_request(chat_folder, temperature=temperature)
    held = 0
    for turn in range(3):
        request = whole(model, request)
        end = reply(model, request, mode)
        counted = end.statistics
        assert counted.cached_prompt_tokens == counted.disk_prompt_tokens
        assert counted.disk_prompt_tokens >= held
        assert bool(held) == bool(turn)
        # The reply's own tokens may be others in the next prompt: its text has no space at its beginning.
        held = (counted.prompt_tokens - 1) // 16 * 16
        request = next_turn(request, end)
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in files(chat_folder))


type KeptChat = tuple[LoadedModel, GenerationRequest, GenerationRequest]


def keep_chat(name: str, folder: Path) -> KeptChat:
    """Keep a chat of two turns; return its model, the second turn and the one after it."""
    model = MODELS[name]()
    first = whole(model, kept_request(folder))
    second = whole(model, next_turn(first, reply(model, first)))
    return model, second, next_turn(second, reply(model, second))


@cache
def _chat_and_files(name: str) -> tuple[KeptChat, dict[Path, bytes]]:
    with TemporaryDirectory() as folder:
        chat = keep_chat(name, Path(folder))
        return chat, {path.relative_to(folder): path.read_bytes() for path in files(Path(folder))}


def kept_chat(name: str, folder: Path) -> KeptChat:
    """Return what `keep_chat` does, with copies of its files, which are made once."""
    (model, *turns), written = _chat_and_files(name)
    for path, data in written.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_bytes(data)
    second, third = (replace(turn, keep=CacheFolder(folder, PLENTY)) for turn in turns)
    return model, second, third


KINDS = ("llama", "a sliding window", "recurrent state")


@pytest.mark.parametrize("name", KINDS)
def test_another_reply_and_an_edit_begin_with_what_is_before_them(name: str, chat_folder: Path) -> None:
    model, second, _ = kept_chat(name, chat_folder)
    counted = reply(model, replace(second, seed=77)).statistics
    held = counted.prompt_tokens - 1 if name != "llama" else (counted.prompt_tokens - 1) // 16 * 16
    assert counted.disk_prompt_tokens == held, "the state where the prompt ends is kept"
    edited = replace(second, messages=(*second.messages[:-1], ChatMessage(Role.USER, "or something else")))
    counted = reply(model, edited).statistics
    assert counted.disk_prompt_tokens >= len(TEXT)
    other = replace(second, messages=(ChatMessage(Role.USER, "not " + TEXT), *second.messages[1:]))
    assert reply(model, other).statistics.disk_prompt_tokens in range(16)


def test_what_is_on_disk_is_written_once(chat_folder: Path) -> None:
    model, second, third = kept_chat("llama", chat_folder)
    before = {path: path.stat().st_ino for path in files(chat_folder)}
    reply(model, replace(second, seed=8))
    reply(model, third)
    after = {path: path.stat().st_ino for path in files(chat_folder)}
    assert after.items() > before.items()


def test_a_cache_in_memory_is_completed_from_disk(chat_folder: Path) -> None:
    model, _, third = kept_chat("llama", chat_folder)
    session = ChatSession(model, cache_bytes=PLENTY)
    reply_in(session, replace(third, keep=None, messages=(ChatMessage(Role.USER, TEXT[:60]),)))
    counted = reply_in(session, third).statistics
    assert 60 <= counted.cached_prompt_tokens - counted.disk_prompt_tokens < 70
    assert counted.cached_prompt_tokens >= counted.prompt_tokens - 40
    session.disk.finish_writing(0)


def test_nothing_is_kept_of_other_requests_and_of_short_ones(
    chat_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = MODELS["llama"]()
    reply(model, replace(kept_request(chat_folder), keep=None))
    monkeypatch.setattr(disk_caches, "_MIN_TOKENS", 1000)
    reply(model, kept_request(chat_folder))
    assert files(chat_folder) == []


def test_it_is_written_in_slices_while_the_engine_is_idle(chat_folder: Path) -> None:
    session = ChatSession(MODELS["llama"](), cache_bytes=PLENTY)
    request = whole(session.model, kept_request(chat_folder))
    end = reply_in(session, request)
    assert files(chat_folder) == []
    assert session.work_while_idle()
    reply_in(session, replace(kept_request(chat_folder, "something new and longer than that"), keep=None))
    while session.work_while_idle():
        pass
    session.disk.finish_writing(60)
    written = end.statistics.context_tokens // 16 + 1
    assert len(files(chat_folder)) == written, "the other reply has another cache"


def test_it_is_written_whatever_comes_after_the_reply(
    small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_engine, "_FINISH_S", 60.0)

    def rest(engine: LocalEngine) -> None:
        engine.rest()
        while engine.idle():
            pass

    def hide(engine: LocalEngine) -> None:
        while engine.idle(hidden=True):
            pass

    def load_again(engine: LocalEngine) -> None:
        load_silently(engine, small_model)

    def work() -> dict[str, int]:
        engine = LocalEngine()
        load_silently(engine, small_model)
        written = {}
        for act in (rest, hide, load_again, LocalEngine.sleep):
            chat = tmp_path / "chats" / act.__name__
            chat.mkdir(parents=True)
            list(engine.generate(kept_request(chat)))
            act(engine)
            written[act.__name__] = len(files(chat))
        engine.close()
        return written

    assert all(on_a_thread(work).values())


def test_a_cache_that_another_reply_takes_is_not_written_into_the_first_one_s_folder(chat_folder: Path) -> None:
    session = ChatSession(MODELS["llama"](), cache_bytes=PLENTY)
    reply_in(session, kept_request(chat_folder))
    reply_in(session, replace(kept_request(chat_folder, TEXT + " and that is another chat"), keep=None))
    assert not session.disk.write_next()
    assert files(chat_folder) == []
    session.disk.finish_writing(0)


def test_nothing_of_an_earlier_reply_is_written_once_its_chat_goes_on_with_another_cache(chat_folder: Path) -> None:
    session = ChatSession(MODELS["llama"](), cache_bytes=PLENTY)
    reply_in(session, kept_request(chat_folder))
    reply_in(session, kept_request(chat_folder, "something else and long enough to be written to the disk"))
    session.disk.finish_writing(60)
    starts = [path for path in files(chat_folder) if path.name.startswith("16-")]
    assert len(starts) == 1, "it may have been deleted from the chat"


@pytest.mark.parametrize("name", KINDS)
def test_states_are_limited_in_number(name: str, chat_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_caches, "_ENDS", 2)
    model, _, third = keep_chat(name, chat_folder)
    states = [path for path in files(chat_folder) if path.name.endswith("end")]
    assert len(states) == 2
    assert reply(model, third).statistics.disk_prompt_tokens > len(TEXT)


def in_its_place(make: Callable[[Path], object]) -> Callable[[Path], None]:
    """Return what removes a file and makes something else."""

    def act(path: Path) -> None:
        path.unlink()
        make(path)

    return act


def rewritten(change: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(change(path.read_bytes()))


HARM: dict[str, Callable[[Path], object]] = {
    "a flipped bit": rewritten(lambda data: data[:-9] + bytes([data[-9] ^ 4]) + data[-8:]),
    "a flipped bit of the header": rewritten(lambda data: data[:30] + bytes([data[30] ^ 4]) + data[31:]),
    "cut": rewritten(lambda data: data[: len(data) // 2]),
    "longer": rewritten(lambda data: data + b"\0"),
    "foreign": rewritten(lambda _: b"hello"),
    "empty": rewritten(lambda _: b""),
    "a folder": in_its_place(Path.mkdir),
    "a pipe": in_its_place(os.mkfifo),
    "a broken link": in_its_place(lambda path: path.symlink_to("nowhere")),
    "gone": Path.unlink,
}


@pytest.mark.parametrize(("how", "name"), grid([*HARM], KINDS, one_in=5))
def test_a_damaged_file_is_not_used(how: str, name: str, chat_folder: Path) -> None:
    model, _, third = kept_chat(name, chat_folder)
    HARM[how](by_start(chat_folder)[32])
    assert reply(model, third).statistics.disk_prompt_tokens == (32 if name == "llama" else 0)
    assert reply(model, third).statistics.disk_prompt_tokens >= len(TEXT), "it is written again"


@pytest.mark.parametrize("name", KINDS)
def test_a_file_of_other_tokens_or_of_another_model_is_not_used(name: str, chat_folder: Path, tmp_path: Path) -> None:
    model, _, third = kept_chat(name, chat_folder)
    other_folder = tmp_path / "chats" / "other"
    other_folder.mkdir()
    other = replace(model, info=replace(model.info, dtype="another"))
    reply(other, whole(model, replace(third, keep=CacheFolder(other_folder, PLENTY))))
    own = by_start(chat_folder)[0]
    foreign = by_start(other_folder)[0]
    assert own.name == foreign.name
    own.write_bytes(foreign.read_bytes())
    assert reply(model, third).statistics.disk_prompt_tokens == 0
    starts = by_start(chat_folder)
    starts[16].write_bytes(starts[32].read_bytes())
    assert reply(model, third).statistics.disk_prompt_tokens == (16 if name == "llama" else 0)


def test_weights_that_are_replaced_while_the_model_is_loaded_have_other_caches(
    chat_folder: Path, tmp_path: Path
) -> None:
    weights = tmp_path / "model" / "model.safetensors"
    weights.parent.mkdir()
    weights.write_bytes(bytes(4 * 2**20))
    loaded = MODELS["llama"]()
    model = replace(loaded, info=replace(loaded.info, path=weights.parent))
    session = ChatSession(model)
    data = bytearray(weights.read_bytes())
    data[5000] = 1  # between the samples of the hash
    weights.write_bytes(data)
    request = whole(model, kept_request(chat_folder))
    end = reply_in(session, request)
    session.disk.finish_writing(60)
    assert len(files(chat_folder)) > 0
    assert reply(model, next_turn(request, end)).statistics.disk_prompt_tokens == 0


def test_other_files_in_the_folder_are_left_out(chat_folder: Path) -> None:
    model, _, third = kept_chat("llama", chat_folder)
    key = files(chat_folder)[0].parent
    for name in ("part-1", "x", "16-zz.rows", f"0-{'0' * 32}.rows", f"0-{'0' * 32}.end", f"{'9' * 30}-a.rows"):
        (key / name).write_bytes(b"what is this")
    (chat_folder / "file").write_bytes(b"?")
    assert reply(model, third).statistics.disk_prompt_tokens >= len(TEXT)


def test_a_folder_that_is_removed_meanwhile_gets_nothing_more(chat_folder: Path, caplog: LogCaptureFixture) -> None:
    session = ChatSession(MODELS["llama"]())
    reply_in(session, kept_request(chat_folder))
    session.disk.write_next()
    remove_folder(chat_folder)
    session.disk.finish_writing(60)
    assert list(chat_folder.parent.iterdir()) == []
    assert caplog.messages == []


@pytest.mark.parametrize("kind", ["full", "read-only"])
def test_a_disk_in_trouble_changes_no_reply(kind: str, tmp_path: Path, caplog: LogCaptureFixture) -> None:
    model = MODELS["llama"]()
    with small_disk(tmp_path) as disk:
        folder = tmp_path / "chats" / "chat"
        folder.mkdir(parents=True)
        request = whole(model, kept_request(folder))
        if kind == "full":
            disk.fill()
        else:
            disk.make_read_only()
        reply(model, request)
        assert files(folder) == []
        assert len(caplog.messages) == (kind == "read-only"), "a full disk has no tenth to spare"
        if kind == "full":
            disk.free()
            reply(model, request)
            assert len(files(folder)) > 0


def test_the_oldest_files_make_room_and_one_chat_alone_stays_within_the_limit(tmp_path: Path) -> None:
    model = MODELS["llama"]()
    sizes = []
    folders = [tmp_path / "chats" / name for name in "abc"]
    for number, folder in enumerate(folders):
        folder.mkdir(parents=True)
        request = whole(model, kept_request(folder, "so" * number + TEXT, limit=sizes[0] * 2 if sizes else PLENTY))
        reply(model, request)
        sizes.append(used_bytes(tmp_path / "chats"))
    assert sizes[2] <= 2 * sizes[0]
    assert len(files(folders[0])) < len(files(folders[2]))
    kept = by_start(folders[0])
    assert not kept or 0 in kept, "the end of a chat goes first"
    for folder in folders:
        remove_folder(folder)
    folders[0].mkdir()
    reply(model, kept_request(folders[0], limit=sizes[0] // 2))
    assert 0 < used_bytes(tmp_path / "chats") <= sizes[0] // 2


def test_two_sessions_share_a_folder(chat_folder: Path) -> None:
    model = MODELS["llama"]()
    request = whole(model, kept_request(chat_folder))
    one = ChatSession(model)
    two = ChatSession(model)
    for session in (one, two):
        reply_in(session, request)
    more = True
    while more:
        more = one.disk.write_next() | two.disk.write_next()
    for session in (one, two):
        session.disk.finish_writing(60)
    assert all(Segment.named(path.name) for path in files(chat_folder))
    assert reply(model, request).statistics.disk_prompt_tokens >= len(TEXT)


def test_a_stop_while_it_is_read_keeps_what_is_in_memory(chat_folder: Path) -> None:
    for name in KINDS:
        model, _, third = kept_chat(name, chat_folder)
        session = ChatSession(model, cache_bytes=PLENTY)
        asked = iter([False] * 5 + [True] * 100)
        with pytest.raises(StoppedError):
            session.generate(third, lambda asked=asked: next(asked))
        assert reply_in(session, third).statistics.disk_prompt_tokens > 0
        session.disk.finish_writing(60)


def test_a_model_with_caches_of_another_type_keeps_none(
    chat_folder: Path, caplog: LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_cache: object) -> None:
        raise UnsupportedCacheError("its cache type is new")

    model = MODELS["llama"]()
    request = kept_request(chat_folder)
    plain(model, replace(request, keep=None))
    monkeypatch.setattr(kv_cache, "round_cache", refuse)
    session = ChatSession(model)
    for _ in range(2):
        reply_in(session, request)
        session.disk.write_next()
    session.disk.finish_writing(60)
    assert files(chat_folder) == []
    assert caplog.messages == ["Caches of this model cannot be kept on disk: its caches are not of a known type"]


def test_a_mended_network_does_not_meet_rows_of_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has to remember to raise a version."""
    monkeypatch.setattr(disk_caches, "__file__", str(tmp_path / "caches_on_disk" / "disk_caches.py"))
    programs = set[tuple[str, ...]]()
    for room in ("mlx_lm_fixes", "models", "verification", "vision"):
        (tmp_path / room).mkdir()
        (tmp_path / room / "ropes.py").write_text("turned = True")
        programs.add(disk_caches._programs.__wrapped__())
    assert len(programs) == 4
