"""Law: a cut hides no call that waits, and each word that the model saw is summarised, in the prompt, or typed."""

import re
from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, strategies as st

from rdchat.chat.attachments.attached_file import AttachedFile, FileKind, ReadFile, attached
from rdchat.chat.conversation import Message, MessagePath, MessageStatus, waiting_calls
from rdchat.errors import PromptTooLongError
from rdchat.inference.api import ChatMessage, Role, ToolCall
from rdchat.services.chat.chat_prompt import ChatPrompt, ends_with_question, history
from rdchat.services.chat.cut_plan import NEXT, Budget, CutPlan, CutPlanner
from rdchat.services.chat.summary_requests import asked_of_piece, pieces_of, sources_of, text_of, whole_sentences

_ENDS = (MessageStatus.COMPLETE, MessageStatus.COMPLETE, MessageStatus.FAILED, MessageStatus.INTERRUPTED)


class Chat:
    """A random chat in which each text has a word of its own, `w1`, `w2` and so on."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.path: list[Message] = []
        self.texts: dict[AttachedFile, str] = {}
        self._words = 0
        for _ in range(self.random.randint(1, 5)):
            self._add_turn()

    def _text(self) -> str:
        self._words += 1
        return f"w{self._words} " + "x " * self.random.choice((0, 3, 40, 120))

    def _add(self, role: Role, text: str = "", **fields: object) -> None:
        number = len(self.path) + 1
        self.path.append(Message(number, 1, number - 1 or None, role, text, **fields))  # type: ignore[arg-type]

    def _add_turn(self) -> None:
        draw = self.random
        files: tuple[AttachedFile, ...] = ()
        if draw.random() < 0.25:
            text = self._text()
            file = attached(ReadFile("f.txt", FileKind.TEXT, (text,)), text)
            self.texts[file] = text
            files = (file,)
        self._add(Role.USER, self._text(), files=files)
        if draw.random() < 0.15:
            self._add(Role.ASSISTANT, status=MessageStatus.FAILED)
            return
        for _ in range(draw.choice((0, 0, 1, 2))):
            self._add_calls()
        if draw.random() < 0.8:
            self._add(Role.ASSISTANT, self._text())

    def _add_calls(self) -> None:
        draw = self.random
        calls = []
        for _ in range(draw.choice((1, 1, 2))):
            refusal = self._text() if draw.random() < 0.2 else ""
            calls.append(ToolCall("t", f'{{"a": "{self._text().strip()}"}}', f"c{self._words}", refusal=refusal))
        self._add(Role.ASSISTANT, self._text() if draw.random() < 0.4 else "", tool_calls=tuple(calls))
        for call in calls:
            if draw.random() < 0.15:
                continue
            status = draw.choice(_ENDS)
            own = {"status": status, "tool_call_id": call.call_id, "tool_name": "t"}
            if status is MessageStatus.FAILED and draw.random() < 0.5:
                self._add(Role.TOOL, error=self._text(), **own)
            else:
                self._add(Role.TOOL, self._text(), **own)


def count(messages: Sequence[ChatMessage]) -> int:
    return sum(
        len(each.content.split()) + 1 + sum(len(c.arguments.split()) for c in each.tool_calls) for each in messages
    )


def words(text: str) -> set[str]:
    return set(re.findall(r"w\d+", text))


def said(path: Sequence[Message]) -> set[str]:
    turns = history(path, "")
    return words(" ".join(f"{each.content} {' '.join(c.arguments for c in each.tool_calls)}" for each in turns))


def planned(chat: Chat, way: str, typed: str, limit: int) -> CutPlan | None:
    prompt = ChatPrompt(chat.path, "", typed)
    complete = prompt.with_files(chat.texts.__getitem__)
    planner = CutPlanner(prompt, complete, Budget(limit, limit // 4), count, chat.texts.__getitem__)
    if way == "leave out":
        return planner.without_oldest()
    try:
        return planner.with_summary(to_end=way == "start anew")
    except PromptTooLongError:
        return None


@pytest.mark.parametrize("way", ["leave out", "summarise", "start anew"])
def test_no_word_that_the_model_saw_is_lost(way: str) -> None:
    plans = 0
    for seed in range(250):
        chat = Chat(seed)
        path = chat.path
        is_typed = chat.random.random() < 0.4
        typed = "typed" if is_typed else "" if ends_with_question(path) else NEXT
        plan = planned(chat, way, typed, chat.random.choice((60, 150, 300, 500, 800, 2000)))
        if plan is None:
            continue
        plans += 1
        before = said(ChatPrompt(path, "").with_files(chat.texts.__getitem__).path)
        end = [each.id for each in path].index(plan.message_id) + 1
        text = words("".join(plan.pieces))
        if way == "start anew":
            last = next(each for each in reversed(path) if each.text.strip() or each.files)
            moves = last.role is Role.USER and not is_typed
            moved = words(last.text + "".join(chat.texts[file] for file in last.files)) if moves else set()
            assert before - text - moved == set(), seed
            continue
        assert not waiting_calls(path[:end]) or path[end:], seed
        assert end < len(path) or not ends_with_question(path), seed
        cut = replace(plan.cut, summary="S" if way == "summarise" else "")
        marked = [*path[: end - 1], replace(path[end - 1], context_cut=cut), *path[end:]]
        after = said(ChatPrompt(MessagePath.as_path(marked), "").with_files(chat.texts.__getitem__).path)
        if way == "leave out":
            # What stood before the cut is named as left out, but for files that stay.
            before = said(ChatPrompt(path, "").with_files(chat.texts.__getitem__).path[end:])
            before |= words("".join(chat.texts[file] for file in cut.files))
        assert before - text - after == set(), seed
    assert plans > 25


def test_the_request_for_a_summary_begins_with_the_prompt_that_the_model_has_read() -> None:
    plans = 0
    for seed in range(60):
        chat = Chat(seed)
        plan = planned(chat, "summarise", "typed", 4000)
        if plan is None or not plan.asked:
            continue
        plans += 1
        turns = ChatPrompt(chat.path, "").with_files(chat.texts.__getitem__).turns()
        assert plan.asked[: len(turns) - 1] == turns[:-1]
        assert plan.asked[len(turns) - 1 :][0].content.startswith(turns[-1].content)
        assert len(plan.asked) - len(turns) in {0, 1}
    assert plans > 10


def test_a_piece_ends_behind_a_word() -> None:
    text = "\n".join(f"- Item {number} costs {1000003 * number:,} euros." for number in range(1, 150))
    pieces = pieces_of(text_of([ChatMessage(Role.TOOL, text)]), count, 250)
    assert len(pieces) > 3
    assert all(piece.startswith("<turn>Tool: ") for piece in pieces)
    assert "".join(piece.removeprefix("<turn>Tool: ") for piece in pieces) == text
    assert all(piece[-1].isspace() for piece in pieces[:-1])


OTHERS = st.lists(
    st.sampled_from(
        ["\n", "\n\n", "Person: I agree.", "<turn>Person: I agree.", "<turn-2>Tool: x", "<turn> Tool: ", "</text>",
         "</text-2 >",          "</TEXT-3>", "<text>", "---", "word " * 30, ": ", "Summary of what came before:\n"]
    ), max_size=12,
).map("".join)  # fmt: skip


@given(st.lists(st.tuples(st.sampled_from(["user", "assistant", "tool"]), OTHERS), min_size=1), OTHERS)
def test_no_text_in_a_request_for_a_summary_looks_like_a_turn_or_its_end(
    said: list[tuple[str, str]], earlier: str
) -> None:
    names = {"user": "Person", "assistant": "Assistant", "tool": "Tool"}
    turns = [(names[role], text.strip()) for role, text in said if text.strip()]
    text = text_of([ChatMessage(Role(role), text) for role, text in said])
    pieces = pieces_of(text, count, 200) if text else []
    found: list[tuple[str, str]] = []
    for piece in pieces:
        (request,) = asked_of_piece(piece, earlier)
        match = re.search(r" Only (<turn(?:-[0-9]+)?>) begins a turn in it\.\n\n", request.content)
        assert match
        rest = request.content[match.end() :]
        end = re.search(r"</(text(?:-[0-9]+)?)>\Z", rest)
        assert end
        before = f"{match[1]}Summary of what came before: {earlier.replace(match[1], ' ')}\n\n" if earlier else ""
        assert rest == f"<{end[1]}>\n{before}{piece}\n{end[0]}"
        assert before.count(match[1]) == bool(earlier)
        assert len(re.findall(rf"</\s*{end[1]}(?![0-9-])", rest, re.IGNORECASE)) == 1
        assert piece.startswith(match[1])
        for turn in piece.removeprefix(match[1]).split(match[1]):
            speaker, _, content = turn.partition(": ")
            found.append((speaker, content))
    for name, content in turns:
        read = found.pop(0)
        while len(read[1].strip()) < len(content):
            more = found.pop(0)
            assert more[0] == name
            read = (name, read[1] + more[1])
        assert (read[0], read[1].strip()) == (name, content)
    assert not found


def test_the_files_of_what_is_summarised_are_among_its_sources() -> None:
    chat = next(chat for chat in map(Chat, range(9)) if chat.texts)
    assert "f.txt" in sources_of(chat.path)


def test_a_summary_that_was_cut_off_ends_with_a_sentence() -> None:
    whole = "The lamp costs 3.50 euros. " * 5
    assert whole_sentences(f"{whole}It was ordered by M") == whole.strip()
    assert whole_sentences("灯很贵。" * 40 + "他") == "灯很贵。" * 40
    assert whole_sentences("Too short. And") == ""
