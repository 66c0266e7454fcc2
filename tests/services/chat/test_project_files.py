"""Passages of a project's files are looked up once for each question of the open chat."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from rdchat.chat.attachments.attached_file import AttachedFile, FileKind, ReadFile, attached
from rdchat.chat.attachments.passage_index import PassageIndex
from rdchat.chat.conversation import Message
from rdchat.inference.api import Role
from rdchat.services.chat import project_files
from rdchat.services.chat.chat_prompt import ChatPrompt
from rdchat.services.chat.project_files import ProjectFiles

TEXT = " ".join(f"word{number}" for number in range(5000))


@pytest.mark.parametrize("questions", [5, 40])
def test_passages_of_the_open_chat_are_looked_up_once(monkeypatch: pytest.MonkeyPatch, questions: int) -> None:
    """Where a chat had more questions than are kept, each count and each reply looked up all of them again."""
    monkeypatch.setattr(project_files, "_CACHED", 10)
    asked = list[str]()
    ranked: Callable[..., tuple[list[int], int]] = PassageIndex.ranked

    def noted(index: PassageIndex, question: str, *more: object) -> tuple[list[int], int]:
        asked.append(question)
        return ranked(index, question, *more)

    monkeypatch.setattr(PassageIndex, "ranked", noted)
    file = attached(ReadFile("a.txt", FileKind.TEXT, (TEXT,)), TEXT)
    files = ProjectFiles(lambda _file: TEXT)

    def looked_up(prompt: ChatPrompt) -> int:
        asked.clear()
        files.texts(prompt, "model", 2000, lambda messages: len(messages[0].content) // 4, lambda: None, for_all=True)
        return len({*asked})

    def chat(name: str, count: int) -> ChatPrompt:
        path = [Message(n, 1, None, Role.USER, f"What of {name}{n}?") for n in range(count)]
        shared: list[AttachedFile] = [file]
        return ChatPrompt(path, "", files=shared)

    whole = chat("word", questions)
    other = chat("other", 3)
    assert looked_up(whole) == questions
    assert looked_up(whole) == 0
    assert looked_up(replace(whole, path=whole.path[:-2], typed=whole.path[-2].text)) == 0
    assert looked_up(other) == 3
    assert looked_up(other) == 0
    assert looked_up(chat("word", 5)) == (0 if questions == 5 else 5)
    assert looked_up(other) == 0
