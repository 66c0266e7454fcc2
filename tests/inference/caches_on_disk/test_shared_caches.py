"""What the chats of a project begin with is read once and kept with it, images too; a kill leaves whole files."""

import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import mlx.core as mx
import pytest
from hypothesis import given, settings, strategies as some

from rdchat.files.cache_folders import remove_folder
from rdchat.inference.api import CacheFolder, ChatMessage, GenerationRequest, Mode, Role
from rdchat.inference.caches_on_disk.disk_caches import DiskCaches
from rdchat.inference.caches_on_disk.segments import Segment, digests_of
from rdchat.inference.session import ChatSession
from rdchat.inference.verification.kv_cache import KVCache, shared_prefix
from rdchat.inference.verification.target import LoadedModel
from tests.grids import pairs, share
from tests.inference.caches_on_disk.kept import MODELS, PLENTY, TEXT, files, kept_request, next_turn, reply, whole
from tests.inference.fakes import shared_llama
from tests.inference.image_prompts import SEEING, Image, ImagePrompt, alone, fresh, images, read

pytestmark = [pytest.mark.across_rows, pytest.mark.usefixtures("small_blocks")]

SHARED = (ChatMessage(Role.USER, TEXT),)
QUESTIONS = ("what grows there and who eats it in the end", "who lives there and since when do they do it")


def project_request(model: LoadedModel, chats: Path, chat: int) -> GenerationRequest:
    """Return the first request of a chat of a project; the folders are there, as the window makes them."""
    folder = chats / f"chat{chat}"
    shared = chats / "project"
    for each in (folder, shared):
        each.mkdir(exist_ok=True)
    request = kept_request(folder, f"{TEXT}\n\n{QUESTIONS[chat]}")
    return whole(model, replace(request, keep=CacheFolder(folder, PLENTY, shared), shared=SHARED))


def shared_length(model: LoadedModel, request: GenerationRequest) -> int:
    alone, prompt = (model.encode_request(each)[0] for each in (replace(request, messages=SHARED), request))
    return shared_prefix(alone, prompt)


def ends(folder: Path) -> list[int]:
    return sorted({segment.end for path in files(folder) if (segment := Segment.named(path.name))})


@pytest.mark.parametrize(("name", "mode"), share(pairs(MODELS, Mode), one_in=4))
def test_a_second_chat_reads_nothing_of_it_again_after_a_restart(name: str, mode: Mode, chat_folder: Path) -> None:
    model = MODELS[name]()
    chats = chat_folder.parent
    first, second = (project_request(model, chats, chat) for chat in (0, 1))
    length = shared_length(model, first)
    assert length >= len(TEXT)
    assert reply(model, first, mode).statistics.disk_prompt_tokens == 0
    counted = reply(model, second, mode).statistics
    assert counted.cached_prompt_tokens == counted.disk_prompt_tokens
    assert length <= counted.disk_prompt_tokens < length + 3
    shutil.rmtree(chats / "chat0")
    assert reply(model, second, mode).statistics.disk_prompt_tokens >= length


@pytest.mark.parametrize("name", ["llama", "a sliding window", "recurrent state"])
def test_the_project_has_the_beginning_alone_and_a_chat_the_rest(name: str, chat_folder: Path) -> None:
    model = MODELS[name]()
    chats = chat_folder.parent
    first = project_request(model, chats, 0)
    end = reply(model, first)
    reply(model, whole(model, next_turn(first, end)))
    length = shared_length(model, first)
    assert ends(chats / "project")[-1] == length, "nothing of the chat's own is kept with the project"
    assert ends(chats / "chat0")[0] > length, "nothing is kept twice"
    before = {path: path.stat().st_ino for path in files(chats / "project")}
    reply(model, project_request(model, chats, 1))
    assert {path: path.stat().st_ino for path in files(chats / "project")} == before


@pytest.mark.parametrize("name", ["llama", "recurrent state"])
def test_without_the_projects_folder_all_is_read_again(name: str, chat_folder: Path) -> None:
    model = MODELS[name]()
    chats = chat_folder.parent
    first = project_request(model, chats, 0)
    reply(model, first)
    shutil.rmtree(chats / "project")
    assert reply(model, first).statistics.disk_prompt_tokens == 0
    assert not (chats / "project").exists(), "a writer does not bring a removed folder back"
    second = project_request(model, chats, 0)
    reply(model, second)
    assert reply(model, project_request(model, chats, 1)).statistics.disk_prompt_tokens >= len(TEXT)


def test_a_chat_outside_of_projects_keeps_all_of_its_own(chat_folder: Path) -> None:
    model = MODELS["llama"]()
    request = replace(project_request(model, chat_folder.parent, 0), shared=())
    session = ChatSession(model, cache_bytes=PLENTY)
    list(session.generate(request))
    session.disk.finish_writing(60)
    assert files(chat_folder.parent / "project") == []
    assert ends(chat_folder.parent / "chat0")[0] == 16


@pytest.mark.parametrize(("name", "step"), [
    ("llama", 3), *(pytest.param(name, 1, marks=pytest.mark.slow) for name in ("recurrent state", "a sliding window")),
])  # fmt: skip
def test_a_kill_while_the_project_is_kept_loses_and_doubles_nothing(name: str, step: int, chat_folder: Path) -> None:
    """Files are whole or missing (see the last test), so a kill leaves the first ones, and one under another name."""
    model = MODELS[name]()
    chats = chat_folder.parent
    first = project_request(model, chats, 0)
    length = shared_length(model, first)
    counts = list[int]()
    for kept in range(0, 20, step):
        shutil.rmtree(chats / "project")
        session = ChatSession(model, cache_bytes=PLENTY)
        list(session.generate(project_request(model, chats, 0)))
        written = 0
        while written < kept and (session.disk.write_next() or written == 0):
            while session.disk._writer.has_more:
                time.sleep(0.001)
            written += 1
        session.disk._work = []
        session.disk._writer.wait_for_jobs(60)
        for folder in (chats / "project").glob("*"):
            (folder / "part-of a file").write_bytes(b"half")
        shutil.rmtree(chats / "chat0")
        counts.append(reply(model, project_request(model, chats, 1)).statistics.disk_prompt_tokens)
        assert ends(chats / "project")[-1] == length
        names = [path.name for folder in (chats / "project", chats / "chat1") for path in files(folder)]
        assert len(whole_names := [each for each in names if Segment.named(each)]) == len(set(whole_names))
        shutil.rmtree(chats / "chat1")
        counted = reply(model, project_request(model, chats, 0)).statistics.disk_prompt_tokens
        assert length <= counted < length + 3
        shutil.rmtree(chats / "chat0")
    assert counts[0] == 0
    assert sorted(counts) == counts
    assert counts[-1] >= length


BEFORE = [1, 2, 3] * 9
BEHIND = [4, 5] * 12


def store(model: LoadedModel, prompt: ImagePrompt, folder: Path) -> None:
    cache = fresh(model, prompt)
    disk = DiskCaches(model)
    kept = CacheFolder(folder, PLENTY)
    read(model, cache, prompt, len(prompt) - 1)
    disk.note_prompt(cache, kept)
    read(model, cache, prompt, len(prompt))
    disk.write_cache(cache, kept)
    disk.finish_writing(60)


def restored(model: LoadedModel, prompt: ImagePrompt, folder: Path) -> KVCache:
    """Return the cache of a prompt after a restart, and check what the network reads behind it."""
    cache = fresh(model, prompt)
    disk = DiskCaches(model)
    disk.extend_cache(cache, prompt.tokens, CacheFolder(folder, PLENTY), lambda: None)
    start = len(cache.tokens)
    tokens = prompt.tokens
    assert cache.tokens == tokens[:start]
    assert mx.allclose(read(model, cache, prompt, len(prompt)), alone(model, prompt)[start:], atol=2e-4)
    del cache.tokens[start:]
    return cache


@pytest.mark.parametrize("name", SEEING)
@settings(max_examples=5)
@given(image=images(), second=images(), whole=some.booleans())
def test_a_stored_prompt_comes_back_with_its_shift(
    name: str, image: Image, second: Image, whole: bool, chat_folder: Path
) -> None:
    model = SEEING[name]()
    one, two = (Image(each.seed, each.count, each.shift, whole) for each in (image, second))
    first = ImagePrompt(BEFORE, one, BEHIND)
    store(model, first, chat_folder)
    again = ImagePrompt(*first.pieces, [7], two, [8, 9])
    assert len(restored(model, again, chat_folder).tokens) == len(first)
    store(model, again, chat_folder)
    assert len(restored(model, ImagePrompt(*again.pieces, [3]), chat_folder).tokens) == len(again)
    for path in chat_folder.iterdir():
        remove_folder(path)


def test_an_image_whose_rows_see_each_other_comes_back_whole_or_not(chat_folder: Path) -> None:
    """Blocks end inside it here."""
    model = shared_llama()
    image = Image(1, 40, whole=True)
    store(model, ImagePrompt(BEFORE, image, [4] * 5), chat_folder)
    found = restored(model, ImagePrompt(BEFORE, image, [5] * 9), chat_folder)
    assert len(found.tokens) == 16, "the prompt stores no block that ends behind the image"
    store(model, ImagePrompt(BEFORE, image, [6] * 20), chat_folder)
    found = restored(model, ImagePrompt(BEFORE, image, [6] * 14), chat_folder)
    assert len(found.tokens) == 80


@pytest.mark.parametrize("name", SEEING)
@pytest.mark.parametrize("whole", [False, True])
def test_the_images_of_a_project_are_read_once_for_all_of_its_chats(name: str, whole: bool, chat_folder: Path) -> None:
    model = SEEING[name]()
    beginning = ImagePrompt(BEFORE, Image(1, 12, -5, whole), BEHIND)
    project = chat_folder.with_name("project")
    project.mkdir()
    found = list[int]()
    for chat in (1, 2):
        prompt = ImagePrompt(*beginning.pieces, [chat, 7] * 9)
        folder = CacheFolder(chat_folder.with_name(f"chat{chat}"), PLENTY, project)
        folder.path.mkdir()
        cache = fresh(model, prompt)
        disk = DiskCaches(model)
        found.append(disk.extend_cache(cache, prompt.tokens, folder, lambda: None))
        if not found[-1]:
            read(model, cache, prompt, len(beginning))
            disk.note_prompt(cache, folder)
        start = len(cache.tokens)
        assert mx.allclose(read(model, cache, prompt, len(prompt)), alone(model, prompt)[start:], atol=2e-4)
        disk.write_cache(cache, folder, len(beginning))
        disk.finish_writing(60)
    assert found == [0, len(beginning)]


def test_digests_know_each_token_of_an_image() -> None:
    tokens = [5, *Image(1, 6).ids, 7]
    others = [[5, *Image(2, 6).ids, 7], [5, *Image(1, 6).ids[::-1], 7], [5, *[-2 - 2**61] * 6, 7], [5] * 8]
    assert len({digests_of(each, [8])[8] for each in (tokens, *others)}) == 5
    assert digests_of(tokens, [3])[3] == digests_of([*tokens[:3], 9], [3])[3]


@pytest.mark.parametrize("kills", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_a_killed_writer_leaves_whole_files(kills: int, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.inference.caches_on_disk.killed_writer", str(tmp_path), str(kills)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
