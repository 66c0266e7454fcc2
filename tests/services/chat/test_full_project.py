"""A day in a project of many long files, with a small context: no question is refused, and little is read again."""

from collections.abc import Sequence

import pytest

from rdchat.chat.presets import LongChats
from rdchat.chat.projects import Project
from rdchat.inference.api import ChatMessage
from rdchat.services.chat.chat_context import Doing
from rdchat.services.chat.summary_requests import SUMMARY_WISH
from tests.services.fakes import Reply, ScriptedEngine
from tests.services.window import Window, text_file

CONTEXT = 8192
QUESTIONS = 30


def words(messages: Sequence[ChatMessage]) -> list[str]:
    return [word for each in messages for word in (each.role.value, *each.content.split())]


def read_again(before: Sequence[str], now: Sequence[str]) -> int:
    """Return how many words of a prompt are not its beginning in common with the one before."""
    shared = next((n for n, (a, b) in enumerate(zip(before, now, strict=False)) if a != b), min(len(before), len(now)))
    return len(now) - shared


@pytest.mark.slow
def test_thirty_questions_to_twenty_files_are_answered_with_few_summaries(
    window: Window, engine: ScriptedEngine
) -> None:
    engine.context_length = CONTEXT
    window.load("/models/short")
    window.settings.change_values(long_chats=LongChats.COMPACT)
    files = []
    for number in range(20):
        parts = [f"Lamp {part} of volume {number}. " + "It is a lamp of glass and brass. " * 30 for part in range(100)]
        files.append(text_file(f"volume {number}.txt", "\n\n".join(parts)))
    assert sum(len(text) for _, text in files) > 2_000_000 - 100_000
    folder = window.make_project(Project("Be brief."), *files)
    window.chat.start_new(folder.id)
    answer = "It costs as much as the others do. " * 20
    for number in range(QUESTIONS):
        engine.replies = [Reply((answer,))]
        before = len(engine.requests)
        window.send(f"What does lamp {number * 3} of volume {number % 20} cost? " + "Please tell me. " * 20)
        window.wait_until(lambda: len(window.chat.path) == 2 * (number + 1) and not window.writing)  # noqa: B023
        window.wait_until_idle()
        window.counted()
        window.qtbot.wait(150)
        window.wait_until(lambda: window.context.doing is Doing.NOTHING)
        assert len(engine.requests) > before
    asked = [each for each in engine.requests if SUMMARY_WISH not in each.messages[-1].content]
    assert len(asked) == QUESTIONS, "each question once: none was refused"
    summaries = len(engine.requests) - len(asked)
    assert 0 < summaries <= 3
    prompts = [words(each.messages) for each in engine.requests]
    for index in range(1, len(engine.requests)):
        is_after = SUMMARY_WISH in engine.requests[index - 1].messages[-1].content
        if not is_after:
            assert read_again(prompts[index - 1], prompts[index]) < CONTEXT // 4
