"""Notes of chats: what the model gets and proposes, and what the person decides."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from rdchat.chat.attachments.attached_file import AttachedFile, block_of
from rdchat.chat.conversation import Message
from rdchat.chat.notes import NOTES_WISH, Note, note_digest, notes_text
from rdchat.chat.projects import Project
from rdchat.inference.api import ChatMessage, Mode, Role
from rdchat.services.chat import note_control
from rdchat.services.chat.chat_prompt import ChatPrompt
from rdchat.services.chat.project_files import ProjectFiles
from rdchat.services.engine.engine_request import EngineState, LimitPrefixCaches
from tests.services.fakes import Reply, ScriptedEngine
from tests.services.window import Window, restarted, text_file

ANSWER = Reply(("Fine", "."))
NOTES = Reply(("- I use tabs.\n", "- Ann leads."))
NONE = Reply(("none",))


@pytest.fixture
def engine() -> ScriptedEngine:
    """A model that is large enough to propose notes."""
    return ScriptedEngine(parameters=1_500_000_000)


@pytest.fixture
def quick(window: Window, monkeypatch: pytest.MonkeyPatch) -> Window:
    """An app that does not wait for a quiet while, and writes no titles."""
    window.settings.change_values(titles_by_model=False)
    monkeypatch.setattr(note_control, "_QUIET_MS", 0)
    return window


def in_project(window: Window, *files: tuple[AttachedFile, str]) -> None:
    """Open a new chat in a new project."""
    window.chat.start_new(window.make_project(Project("Be brief."), *files).id)


def proposed(window: Window) -> list[str]:
    return [note.text for note in window.notes.proposed(window.chat.conversation)]


def kept(window: Window) -> list[str]:
    return [note.text for note in window.replies.notes()]


def keep(window: Window, index: int = 0) -> None:
    note = window.notes.proposed(window.chat.conversation)[index]
    window.notes.keep(note, note.text)


def wait_for_requests(window: Window, engine: ScriptedEngine, count: int) -> None:
    """Wait until the engine was asked so often, and what it said has come."""
    window.wait_until(lambda: len(engine.requests) == count)
    ended: list[object] = []
    window.slot.engine.submit(LimitPrefixCaches(None), ended.append)
    window.wait_until(lambda: bool(ended))


def asked(engine: ScriptedEngine) -> Sequence[ChatMessage]:
    """Return what the model got of a chat last."""
    return next(each.messages for each in reversed(engine.requests) if each.leaves_cache)


def contents(messages: Sequence[ChatMessage]) -> str:
    return "\n".join(message.content for message in messages)


def test_the_model_proposes_notes_and_none_counts_before_it_is_kept(quick: Window, engine: ScriptedEngine) -> None:
    engine.replies = [ANSWER, NOTES, ANSWER, NONE, ANSWER]
    in_project(quick)
    quick.ask("Tabs, and Ann leads")
    wait_for_requests(quick, engine, 2)
    request = engine.last_request
    assert [message.content for message in request.messages] == ["Tabs, and Ann leads", "Fine.", NOTES_WISH]
    assert (request.sampling.temperature, request.draft.mode) == (0.0, Mode.OFF)
    assert (request.leaves_cache, request.keep, request.thinking_tokens) == (False, None, 0)
    assert proposed(quick) == ["I use tabs", "Ann leads"]
    assert (kept(quick), quick.texts) == ([], ["Tabs, and Ann leads", "Fine."])
    quick.ask("Go on")
    assert engine.requests[2].messages[1].content == "Tabs, and Ann leads"
    keep(quick, 1)
    assert (kept(quick), proposed(quick)) == (["Ann leads"], ["I use tabs"])
    wait_for_requests(quick, engine, 4)
    quick.ask("And now")
    system, question, *_ = engine.requests[4].messages
    assert system.content == "Be brief."
    (note,) = quick.replies.notes()
    assert question.content == f"{notes_text([note])}\n\nTabs, and Ann leads"


def test_what_is_asked_to_remember_needs_no_model(window: Window, engine: ScriptedEngine) -> None:
    in_project(window)
    engine.replies = [Reply(error=RuntimeError("out of order"))]
    window.ask("Remember that I use tabs. And hello")
    assert proposed(window) == ["I use tabs"]
    (note,) = window.notes.proposed(window.chat.conversation)
    assert note.source == ""
    window.notes.dismiss(note)
    window.regenerate(window.last.id)
    assert proposed(window) == []


@pytest.mark.parametrize("decision", ["dismissed", "kept", "edited"])
def test_a_decided_proposal_is_not_made_again(
    window: Window, window_on: Callable[[Path], Window], decision: str
) -> None:
    """Neither for its question's other replies and versions, nor after a restart; a new question asks anew."""
    in_project(window)
    window.ask("Remember that I use tabs. And hello")
    (note,) = window.notes.proposed(window.chat.conversation)
    match decision:
        case "dismissed":
            window.notes.dismiss(note)
        case "kept":
            window.notes.keep(note, note.text)
        case "edited":
            window.notes.keep(note, "I use spaces")
    window.chat.set_own(keep_cache=False)  # the chat's other options keep what was decided
    window.continue_reply(window.last.id)
    window.wait_until_idle()
    assert proposed(window) == []
    again = restarted(window, window_on)
    again.continue_reply(again.last.id)
    again.wait_until_idle()
    assert proposed(again) == []
    again.regenerate(again.last.id)
    again.edit_message(again.chat.path[0].id, "Remember that I use tabs. And good morning")
    again.wait_until_idle()
    assert proposed(again) == []
    again.ask("Remember that I use tabs!")
    assert proposed(again) == ["I use tabs"]


def test_a_restart_proposes_again_what_was_not_decided(window: Window, window_on: Callable[[Path], Window]) -> None:
    in_project(window)
    window.ask("Remember that I use tabs")
    again = restarted(window, window_on)
    assert proposed(again) == []
    again.regenerate(again.last.id)
    assert proposed(again) == ["I use tabs"]


def test_the_model_does_not_propose_what_was_dismissed(quick: Window, engine: ScriptedEngine) -> None:
    engine.replies = [ANSWER, NOTES, ANSWER, NOTES, ANSWER]
    in_project(quick)
    quick.ask("Remember that I use tabs.")
    quick.notes.dismiss(quick.notes.proposed(quick.chat.conversation)[0])
    wait_for_requests(quick, engine, 2)
    assert proposed(quick) == ["Ann leads"]
    quick.notes.dismiss(quick.notes.proposed(quick.chat.conversation)[0])
    quick.ask("Hi")
    wait_for_requests(quick, engine, 4)
    assert proposed(quick) == []


def test_nothing_of_a_dismissed_text_is_on_the_disk_and_its_digest_goes_with_the_chat(
    quick: Window, engine: ScriptedEngine
) -> None:
    engine.replies = [ANSWER, Reply(("- Zebra stripes.",)), ANSWER]
    in_project(quick)
    quick.ask("Hi")
    wait_for_requests(quick, engine, 2)
    (note,) = quick.notes.proposed(quick.chat.conversation)
    quick.notes.dismiss(note)
    (digest,) = quick.stored_chat.own.decided_notes
    assert note_digest("zebra STRIPES", digest) == digest != note_digest("Zebra stripes")
    assert quick.stored_chat.own.portable.decided_notes == ()
    files = [path for path in quick.store.path.parent.rglob("*") if path.is_file()]
    assert not [path for path in files if b"zebra" in path.read_bytes().lower()]
    chat = quick.stored_chat.id
    quick.chats.delete_conversation(chat)
    quick.store.organiser.schedule_erase([chat])
    quick.store.organiser.erase().result()
    assert quick.shut_down()
    quick.store.close()
    assert not [path for path in files if path.exists() and digest.encode() in path.read_bytes()]


@pytest.mark.parametrize("is_by_model", [False, True])
def test_a_proposal_goes_with_the_words_that_it_comes_from(
    quick: Window, engine: ScriptedEngine, is_by_model: bool
) -> None:
    engine.replies = [ANSWER, Reply(("- It is Monday",)) if is_by_model else NONE, ANSWER, NONE]
    in_project(quick)
    text = "Hi" if is_by_model else "Remember that it is Monday"
    quick.ask(text)
    wait_for_requests(quick, engine, 2)
    assert proposed(quick) == ["it is Monday" if not is_by_model else "It is Monday"]
    question = quick.chat.path[0]
    quick.edit_message(question.id, "Remember that it is Tuesday")
    quick.wait_until_idle()
    assert proposed(quick) == ["it is Tuesday"]
    quick.chat.show_alternative(quick.chat.path[0].id, -1)
    assert [each.casefold() for each in proposed(quick)] == ["it is monday"]
    keep(quick)
    quick.chat.show_alternative(question.id, 1)
    quick.delete_message(quick.chat.path[0].id)
    assert (proposed(quick), [each.casefold() for each in kept(quick)]) == ([], ["it is monday"])
    quick.chats.undo()
    assert proposed(quick) == ["it is Tuesday"]


def test_a_corrected_reply_takes_the_models_proposals_along(quick: Window, engine: ScriptedEngine) -> None:
    engine.replies = [ANSWER, NOTES]
    in_project(quick)
    quick.ask("Hi")
    wait_for_requests(quick, engine, 2)
    assert len(proposed(quick)) == 2
    quick.edit_message(quick.last.id, "Nobody leads.")
    assert proposed(quick) == []


def test_a_selected_text_becomes_a_note_of_its_chats_project(window: Window) -> None:
    in_project(window, text_file("a.txt", "Alpha"))
    window.ask("Hi")
    question, reply = window.chat.path
    for message, source in ((question, ""), (reply, "a file")):
        note = window.notes.note_from(window.chat.conversation, message, "Ann\nleads")
        assert note is not None
        assert (note.source, note.scope, note.text) == (source, "the project “Work”", "Ann\nleads")
    window.chat.set_own(notes=False)
    assert window.notes.note_from(window.chat.conversation, question, "Ann leads") is None


def test_a_temporary_chat_has_no_notes_and_proposes_none(quick: Window, engine: ScriptedEngine) -> None:
    quick.settings.change_values(notes_everywhere=True)
    engine.replies = [ANSWER]
    quick.ask("Remember that I use tabs")
    wait_for_requests(quick, engine, 2)
    keep(quick)
    quick.chat.start_temporary()
    quick.ask("Remember that Ann leads")
    wait_for_requests(quick, engine, 3)
    assert engine.last_contents == ["Remember that Ann leads"]
    assert (proposed(quick), kept(quick)) == ([], ["I use tabs"])
    assert not [note for note in quick.notes.waiting if "Ann" in note.text]
    quick.chat.keep_temporary()
    quick.ask("Go on")
    assert "I use tabs" in contents(asked(engine))


def test_chats_outside_of_projects_have_notes_only_if_a_person_wants(quick: Window, engine: ScriptedEngine) -> None:
    quick.ask("Remember that I use tabs")
    assert (proposed(quick), len(engine.requests)) == ([], 1)
    engine.replies = [ANSWER]
    quick.settings.change_values(notes_everywhere=True)
    quick.ask("Remember that I use tabs")
    keep(quick)
    in_project(quick)
    quick.ask("Remember that Ann leads")
    keep(quick)
    quick.ask("Hi")
    first, second = quick.replies.notes()
    assert asked(engine)[1].content.startswith(f"{notes_text([first, second])}\n\n")
    quick.chat.start_new()
    quick.ask("Hi")
    assert asked(engine)[0].content == f"{notes_text([first])}\n\nHi"
    quick.settings.change_values(notes_everywhere=False)
    quick.ask("Hi")
    assert asked(engine)[0].content == "Hi"


def test_the_model_is_told_what_is_noted(quick: Window, engine: ScriptedEngine) -> None:
    quick.settings.change_values(notes_everywhere=True)
    for number in range(25):
        quick.store.organiser.keep_note(Note(f"It is {number}", None, None))
    engine.replies = [ANSWER, NONE, ANSWER]
    quick.ask("Hi")
    wait_for_requests(quick, engine, 2)
    wish = engine.last_request.messages[-1].content
    assert wish == f"{NOTES_WISH}\n\n{notes_text(quick.replies.notes()[-20:])}"


def test_a_project_does_not_see_the_notes_of_another_one(window: Window, engine: ScriptedEngine) -> None:
    in_project(window)
    window.ask("Remember that I use tabs")
    keep(window)
    in_project(window)
    window.ask("Hi")
    assert "tabs" not in contents(asked(engine))


def test_a_chat_can_switch_notes_off(quick: Window, engine: ScriptedEngine) -> None:
    in_project(quick)
    engine.replies = [ANSWER, NONE, ANSWER]
    quick.ask("Remember that I use tabs")
    wait_for_requests(quick, engine, 2)
    quick.chat.set_own(notes=False)
    assert proposed(quick) == []
    quick.chat.set_own(notes=True)
    keep(quick)
    quick.chat.set_own(notes=False)
    quick.ask("Remember that Ann leads")
    assert "I use tabs" not in asked(engine)[1].content.split("Remember")[0]
    assert (proposed(quick), len(engine.requests)) == ([], 3)


def test_the_model_is_not_asked_while_three_wait(quick: Window, engine: ScriptedEngine) -> None:
    in_project(quick)
    engine.replies = [ANSWER, Reply(("- One\n- Two\n- Three\n- Four",)), ANSWER]
    quick.ask("Hi")
    wait_for_requests(quick, engine, 2)
    assert proposed(quick) == ["One", "Two", "Three"]
    quick.ask("Hi")
    wait_for_requests(quick, engine, 3)
    for note in quick.notes.proposed(quick.chat.conversation):
        quick.notes.dismiss(note)
    engine.replies = [ANSWER, Reply(("- One\n- Five",)), ANSWER]
    quick.ask("Hi")
    wait_for_requests(quick, engine, 5)
    assert proposed(quick) == ["Five"]  # one that was refused is not proposed again


@pytest.mark.parametrize("reply", [Reply(("- So",), error=RuntimeError("out of order")), Reply(("<think>\n- So",))])
def test_what_did_not_end_by_itself_proposes_nothing(quick: Window, engine: ScriptedEngine, reply: Reply) -> None:
    in_project(quick)
    engine.replies = [ANSWER, reply, ANSWER]
    quick.ask("Hi")
    wait_for_requests(quick, engine, 2)
    assert (proposed(quick), quick.seen.notices) == ([], [])


def test_the_next_question_stops_the_model(quick: Window, engine: ScriptedEngine) -> None:
    in_project(quick)
    engine.replies = [ANSWER, NOTES, ANSWER, NONE, ANSWER]
    engine.gate.shut()
    engine.gate.allow(4)  # all of the reply, and nothing of what follows
    quick.send("Hi")
    quick.wait_until(lambda: len(engine.requests) == 2)
    quick.wait_until(lambda: engine.gate.is_waiting)
    assert quick.replies.state is EngineState.IDLE
    quick.send("And bread?")
    quick.wait_until(lambda: len(engine.requests) == 3)  # the gate is shut: it was stopped
    assert engine.last_request.messages[-1].content == "And bread?"
    engine.gate.open()
    quick.wait_until_idle()
    assert proposed(quick) == []


def test_a_note_from_a_chat_with_text_of_others_says_so(quick: Window, engine: ScriptedEngine) -> None:
    in_project(quick, text_file("a.txt", "Alpha"))
    engine.replies = [ANSWER, NOTES, ANSWER]
    quick.ask("Remember that it is red")
    wait_for_requests(quick, engine, 2)
    first, *others = quick.notes.proposed(quick.chat.conversation)
    assert (first.text, first.source) == ("it is red", "")
    assert {note.source for note in others} == {"a file"}


def test_a_remote_model_gets_notes_after_the_question_only_and_proposes_none(
    quick: Window, engine: ScriptedEngine
) -> None:
    questions: list[ChatPrompt] = []
    quick.replies.sending_asked.connect(lambda waiting: questions.append(waiting.prompt))
    quick.settings.change_values(notes_everywhere=True)
    engine.replies = [ANSWER, NONE, ANSWER]
    quick.ask("Remember that I use tabs")
    keep(quick)
    wait_for_requests(quick, engine, 2)
    quick.load("remote:studio/qwen")
    quick.chat.start_new()
    quick.send("Hi")
    quick.wait_until(lambda: len(questions) == 1)
    assert ([note.text for note in questions[0].notes], len(engine.requests)) == (["I use tabs"], 2)
    (waiting,) = quick.replies.live
    quick.replies.agree(waiting, "https://studio.local")
    quick.wait_until_idle()
    assert "I use tabs" in asked(engine)[0].content
    quick.ask("Remember that Ann leads")
    assert (len(questions), len(engine.requests)) == (1, 4)
    keep(quick)
    quick.send("One note more")
    quick.wait_until(lambda: len(questions) == 2)
    quick.stop_reply()
    quick.wait_until_idle()
    assert len(engine.requests) == 4


def test_deleted_and_changed_notes_are_no_longer_sent(window: Window, engine: ScriptedEngine) -> None:
    in_project(window)
    window.ask("Remember that I use tabs")
    keep(window)
    notes = window.notes
    kept = window.replies.notes
    notes.change(kept()[0], "I use spaces")
    window.ask("Hi")
    assert "I use spaces" in asked(engine)[1].content
    notes.change(kept()[0])
    window.ask("Hi")
    assert asked(engine)[1].content == "Remember that I use tabs"


def test_the_ring_counts_notes(window: Window) -> None:
    in_project(window)
    window.ask("Remember that I use tabs")
    before = window.counted()
    keep(window)
    window.wait_until(lambda: window.context.meter.use != before)
    (note,) = window.replies.notes()
    assert window.counted().tokens - before.tokens == len(notes_text([note]).split())


WORDS = st.text("ab<>/ ", max_size=12).map(lambda text: " ".join(text.split())).filter(bool)


@given(
    texts=st.lists(WORDS, max_size=5),
    whole=st.lists(WORDS, max_size=2),
    asked=st.lists(WORDS, max_size=3),
    system=WORDS,
)
@settings(max_examples=30)
def test_no_note_of_a_prompt_is_lost_or_doubled(
    texts: list[str], whole: list[str], asked: list[str], system: str
) -> None:
    """All stand once, in order, behind the project's files and before the chat's first turn."""
    fitting = [Note(f"note{index} {text}", 1, None, date="today") for index, text in enumerate(texts)]
    files = [text_file(f"w{index}", text) for index, text in enumerate(whole)]
    roles = [Role.USER if index % 2 == 0 else Role.ASSISTANT for index in range(len(asked))]
    path = [
        Message(index + 1, 1, index or None, roles[index], f"turn{index} {text}") for index, text in enumerate(asked)
    ]
    prompt = ChatPrompt(path, system, "typed", files=[file for file, _ in files], notes=fitting)
    text_of = dict(files).__getitem__
    complete = prompt.with_files(text_of, shared=ProjectFiles(text_of).texts(prompt, "", 10**6, len, lambda: None))
    turns = complete.turns()
    blocks = [block_of(file, text) for file, text in files]
    first = f"turn0 {asked[0]}" if asked else "typed"
    names = [f"(Files of this project: {', '.join(file.name for file, _ in files)})"] if files else []
    begins = "\n\n".join([*blocks, *names, *([notes_text(fitting)] if fitting else []), first])
    assert turns[1].content.startswith(begins)
    said = "\n".join(turn.content for turn in turns)
    assert all(said.count(f"- today: {note.text}") == 1 for note in fitting)
    alone = replace(complete, notes=()).beginning
    assert complete.beginning == alone, "what the project's cache holds has no note"


@pytest.mark.parametrize(("limit", "context"), [(1, 2048), (7, 2048), (17, 2048), (18, 2048), (1000, 2048), (1000, 80)])
def test_the_newest_notes_up_to_the_limit_are_sent(
    window: Window, engine: ScriptedEngine, limit: int, context: int
) -> None:
    engine.context_length = context
    window.load("/models/small")
    window.settings.change_values(notes_everywhere=True, notes_tokens=limit)
    for number in range(5):
        window.store.organiser.keep_note(Note(f"It is {number}", None, None))
    window.ask("Hi")
    notes = window.replies.notes()
    limit = min(limit, context // 4)
    fitting = [notes[first:] for first in range(6) if len(notes_text(notes[first:]).split()) <= limit]
    expected = notes_text(fitting[0])
    assert asked(engine)[0].content == (f"{expected}\n\nHi" if expected else "Hi")


def test_at_most_three_proposals_wait_also_on_a_path_that_is_not_shown(quick: Window, engine: ScriptedEngine) -> None:
    in_project(quick)
    many = " ".join(f"Remember that it is {number}." for number in range(2000))
    quick.ask(many)
    assert proposed(quick) == ["it is 0", "it is 1", "it is 2"]
    quick.ask("Remember that I use tabs")
    assert len(quick.notes.waiting) == len(proposed(quick)) == 3
    quick.edit_message(quick.chat.path[0].id, many.replace("it is", "we are"))
    quick.wait_until_idle()
    assert proposed(quick) == ["we are 0", "we are 1", "we are 2"]
    reply = quick.chat.path[-1]
    quick.chat.show_alternative(quick.chat.path[0].id, -1)
    quick.notes._on_ended(reply)
    assert len(quick.notes.waiting) == 6
