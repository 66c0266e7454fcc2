"""What the chats of a project begin with is read once, by whichever chat comes first, and kept with the project."""

import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest

from rdchat.inference.api import CacheFolder, ChatMessage, GenerationRequest, Mode, Role
from rdchat.inference.caches_on_disk.segments import Segment
from rdchat.inference.session import ChatSession
from rdchat.inference.verification.kv_cache import shared_prefix
from rdchat.inference.verification.target import LoadedModel
from tests.grids import pairs, share
from tests.inference.caches_on_disk.kept import MODELS, PLENTY, TEXT, files, kept_request, next_turn, reply, whole

pytestmark = [pytest.mark.across_rows, pytest.mark.usefixtures("small_blocks")]

SHARED = (ChatMessage(Role.USER, TEXT),)
QUESTIONS = ("what grows there and who eats it in the end", "who lives there and since when do they do it")


def project_request(model: LoadedModel, chats: Path, chat: int, project: str = "project") -> GenerationRequest:
    """Return the first request of a chat of a project; the folders are there, as the window makes them."""
    folder = chats / f"chat{chat}"
    shared = chats / project
    for each in (folder, shared):
        each.mkdir(exist_ok=True)
    request = kept_request(folder, f"{TEXT}\n\n{QUESTIONS[chat]}")
    return whole(model, replace(request, keep=CacheFolder(folder, PLENTY, shared), shared=SHARED))


def shared_length(model: LoadedModel, request: GenerationRequest) -> int:
    alone, prompt = (model.encode_seen(each)[0] for each in (replace(request, messages=SHARED), request))
    return shared_prefix(alone, prompt)


def ends(folder: Path) -> list[int]:
    return sorted({segment.end for path in files(folder) if (segment := Segment.named(path.name))})


@pytest.mark.parametrize(("name", "mode"), share(pairs(MODELS, Mode), one_in=3))
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


@pytest.mark.parametrize("name", ["llama", "recurrent state", "a sliding window"])
def test_a_kill_while_the_project_is_kept_loses_and_doubles_nothing(name: str, chat_folder: Path) -> None:
    """Files are whole or missing (`test_kills`), so a kill leaves the first ones, and one under another name."""
    model = MODELS[name]()
    chats = chat_folder.parent
    first = project_request(model, chats, 0)
    length = shared_length(model, first)
    counts = list[int]()
    for written in range(20):
        shutil.rmtree(chats / "project")
        session = ChatSession(model, cache_bytes=PLENTY)
        list(session.generate(project_request(model, chats, 0)))
        step = 0
        while step < written and (session.disk.write_next() or step == 0):
            while session.disk._writer.has_more:
                time.sleep(0.001)
            step += 1
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
