"""A folder's project: what its chats share."""

import re
import threading
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from rdchat.chat.attachments.attached_file import block_of, image_file
from rdchat.chat.conversation import Message, MessageStatus
from rdchat.chat.presets import Preset
from rdchat.chat.projects import Folder, Project
from rdchat.chat.storage import stored_chats
from rdchat.chat.store import ConversationStore
from rdchat.chat.summaries import ContextCut
from rdchat.errors import ModelError
from rdchat.inference.api import ChatMessage, Role
from rdchat.services.chat.borrowed_model import OtherModel
from rdchat.services.chat.chat_prompt import ChatPrompt, ProjectTexts
from rdchat.services.chat.project_files import ProjectFiles
from tests.inference.vision.pictures import encoded, photo
from tests.services.fakes import ScriptedEngine
from tests.services.window import Window, text_file

RHYME = Project("Rhyme.")


def test_a_moved_chat_takes_the_project_on_with_its_next_question_and_says_so(
    window: Window, engine: ScriptedEngine
) -> None:
    window.ask("One")
    assert engine.last_request.messages[0].role is Role.USER
    folder = window.make_project(RHYME)
    with window.qtbot.waitSignal(window.chat.project_taken) as taken:
        window.chats.order.move(window.stored_chat, folder.id)
    assert taken.args == [folder]
    window.ask("Two")
    assert engine.last_request.messages[0].content == "Rhyme."
    window.chats.undo()
    window.ask("Three")
    assert engine.last_request.messages[0].role is Role.USER


def test_only_the_list_reads_the_projects_of_others(window: Window, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has megabytes of instructions after an import; a question read all of them twenty times."""
    own = window.make_project(RHYME)
    other = window.make_project(RHYME, name="Other")
    reads = list[int]()
    lists = list[None]()
    here = threading.get_ident()
    read_folder = stored_chats.folder_from

    def read(row: tuple[Any, ...]) -> Folder:
        if threading.get_ident() == here:
            reads.append(row[0])
        return read_folder(row)

    monkeypatch.setattr(stored_chats, "folder_from", read)
    order = window.chats.order
    list_folders = order.read_folders
    monkeypatch.setattr(order, "read_folders", lambda: (lists.append(None), list_folders()))
    window.chat.start_new(own.id)
    window.ask("One")
    window.chat.open_chat(window.stored_chat.id)
    window.ask("Two")
    assert lists
    assert own.id in reads
    assert reads.count(other.id) <= len(lists)


def test_a_plain_folder_says_nothing(window: Window) -> None:
    window.ask("One")
    folder = window.chats.order.create_folder("Plain")
    assert folder is not None
    with window.qtbot.assertNotEmitted(window.chat.project_taken):
        window.chats.order.move(window.stored_chat, folder.id)
    assert window.chat.project_folder is None


def test_the_order_is_chat_project_preset_settings(window: Window) -> None:
    chat = window.chat
    control = window.settings
    control.change_values(system_prompt="Settings")
    preset = Preset("Short", system_prompt="Preset")
    control.change_values(presets=(preset,))
    folder = window.make_project(Project(preset=preset.id))
    chat.start_new(folder.id)
    assert chat.values.system_prompt == "Preset"
    order = window.chats.order
    order.set_project(folder, Project("Project", preset.id))
    chat.follow_project()
    assert chat.values.system_prompt == "Project"
    chat.set_options(system_prompt="Chat")
    assert chat.values.system_prompt == "Chat"
    chat.use_preset("")
    assert chat.values.system_prompt == "Project"
    order.delete_folder(folder)
    assert chat.values.system_prompt == "Settings"


def test_an_inner_folder_has_the_project_of_the_outer_one_unless_it_has_its_own(window: Window) -> None:
    order = window.chats.order
    outer = window.make_project(RHYME)
    inner = order.create_folder("Inner", outer.id)
    assert inner is not None
    chat = window.chat
    chat.start_new(inner.id)
    assert chat.values.system_prompt == "Rhyme."
    order.set_project(inner, Project("Be brief."))
    assert chat.values.system_prompt == "Be brief."
    order.delete_folder(outer)
    assert chat.values.system_prompt == "Be brief."


def test_a_new_chat_of_a_project_is_stored_in_its_folder(window: Window, engine: ScriptedEngine) -> None:
    folder = window.make_project(RHYME)
    window.chat.start_new(folder.id)
    with window.qtbot.assertNotEmitted(window.chat.project_taken):
        window.ask("Hi")
    assert engine.last_request.messages[0].content == "Rhyme."
    assert window.stored_chat.folder_id == folder.id


def test_the_projects_model_is_loaded_for_the_next_question_and_stays(
    window: Window, engine: ScriptedEngine, tmp_path: Path
) -> None:
    window.ask("One")
    before = len(engine.loads)
    folder = window.make_project(Project(model=str(tmp_path)))
    window.chats.order.move(window.stored_chat, folder.id)
    assert len(engine.loads) == before
    window.ask("Two")
    assert [model for model, _ in engine.loads[before:]] == [str(tmp_path)]
    window.ask("Three")
    assert len(engine.loads) == before + 1


@pytest.mark.parametrize(
    "model", ["/models/gone", "someone/gone", "gone", "remote:nobody/gone", "ranks:a,b:/models/gone"]
)
def test_a_model_that_is_gone_is_taken_from_no_other_chat(model: str, window: Window, engine: ScriptedEngine) -> None:
    """One question in the project unloaded the model of all chats, and a chat outside failed with the same path."""
    window.ask("One")
    outside = window.stored_chat.id
    before = list(engine.loads)
    folder = window.make_project(Project(model=model))
    window.chat.start_new(folder.id)
    assert model in window.replies.missing_model(window.chat.conversation)
    window.ask("Two")
    for again in (
        lambda: window.controller.regenerate(window.last.id),
        lambda: window.edit_message(window.chat.path[0].id, "Three"),
        lambda: window.continue_reply(window.last.id),
    ):
        again()
        window.wait_until_idle()
        assert (window.last.status, window.last.text) == (MessageStatus.FAILED, "")
        assert window.last.error == window.replies.missing_model(window.chat.conversation)
    window.controller.regenerate(window.last.id, other=OtherModel(None, "tiny", stay=True))
    window.wait_until(lambda: window.last.text == "Hello, you!")
    assert [name for name, _ in engine.loads[len(before) :]] == [None], "only the model that the person chose"
    window.chat.open_chat(outside)
    assert window.ask("And here?").text == "Hello, you!"
    assert len(engine.loads) == len(before) + 1
    window.chats.order.set_project(window.chats.order.folders[0], RHYME)
    window.chat.start_new(folder.id)
    assert window.ask("Four").text == "Hello, you!"


def test_a_model_that_is_here_and_does_not_load_gives_the_one_before_back(
    window: Window, engine: ScriptedEngine, tmp_path: Path
) -> None:
    window.ask("One")
    outside = window.stored_chat.id
    engine.load_errors[str(tmp_path)] = ModelError("It is damaged.", "Fetch it again.")
    window.chat.start_new(window.make_project(Project(model=str(tmp_path))).id)
    window.send("Two")
    window.wait_until(lambda: len(engine.loads) == 3)
    window.wait_until_idle()
    assert "It is damaged." in window.last.error
    window.chat.open_chat(outside)
    assert window.ask("And here?").text == "Hello, you!"
    assert [name for name, _ in engine.loads] == [None, str(tmp_path), None]
    assert window.settings.values.model is None


def test_a_chat_has_the_projects_tools_until_it_chooses_its_own(window: Window) -> None:
    chat = window.chat
    folder = window.make_project(Project(tools=("web", "notes")))
    chat.start_new(folder.id)
    tools = lambda: chat.replies.order.tools(chat.conversation)  # noqa: E731
    assert tools() == ("web", "notes")
    chat.set_tools(("web",), ())
    assert tools() == ("web",)
    chat.set_tools((), ())
    assert tools() == ()
    chat.set_options(system_prompt="Hello")
    assert tools() == ()
    chat.set_tools(("notes", "web"), ())
    window.chats.order.set_project(folder, Project(tools=("web",)))
    assert tools() == ("web",)


# Files


def test_whole_files_stand_before_the_first_question_of_each_chat(window: Window, engine: ScriptedEngine) -> None:
    files = text_file("a.txt", "Alpha"), text_file("b.txt", "Beta")
    folder = window.make_project(RHYME, *files)
    assert [file for file, _ in files] == [*folder.files]
    expected = '<file name="a.txt">\nAlpha\n</file>\n\n<file name="b.txt">\nBeta\n</file>'
    expected += "\n\n(Files of this project: a.txt, b.txt)"
    for _ in range(2):
        window.chat.start_new(folder.id)
        window.ask("One")
        window.ask("Two")
        system, question, _, second = engine.last_request.messages
        assert system.content == "Rhyme."
        assert question.content == f"{expected}\n\nOne"
        assert second.content == "Two"


def test_a_file_that_does_not_fit_gives_the_passages_of_each_question(window: Window, engine: ScriptedEngine) -> None:
    paragraphs = [f"Paragraph {number} about {word}. " + "It goes on and on. " * 40 for number, word in
                  enumerate(["bread", "Lisbon", "wine"] + ["nothing"] * 60)]  # fmt: skip
    long = text_file("long.txt", "\n\n".join(paragraphs))
    folder = window.make_project(Project(), text_file("short.txt", "Short"), long)
    window.chat.start_new(folder.id)
    window.ask("What about Lisbon?")
    first = engine.last_request.messages[0].content
    names = "(Files of this project: short.txt, long.txt (in passages))"
    assert first.startswith(
        f'<file name="short.txt">\nShort\n</file>\n\n{names}\n\n<file name="long.txt" part="passage'
    )
    assert "about Lisbon" in first
    assert "about wine" not in first
    window.ask("And wine?")
    messages = engine.last_request.messages
    assert messages[0].content.endswith(f"{names}\n\nWhat about Lisbon?"), "those of the last question alone stay"
    assert "about wine" in messages[2].content


def test_the_ring_counts_what_the_files_add(window: Window) -> None:
    """Whole files, passages and images; the fake model counts words, and one token more for each message."""
    picture = image_file(encoded(photo(), "PNG"), "fox.png")
    folder = window.make_project(RHYME, text_file("a.txt", "Alpha beta gamma"), picture)
    window.chat.start_new(folder.id)
    use = window.counted()
    # <file name="a.txt">, three words, </file>, "(Files of this project: a.txt, fox.png)", and the message.
    assert (use.shared_tokens, use.tokens, use.images) == (13, 13 + 2, 1)
    window.chat.set_typed("one two")
    use = window.counted("one two")
    # The question is a part of the first message.
    assert (use.shared_tokens, use.tokens) == (12, 2 + 13 + 2)


def test_images_of_the_project_stand_before_the_first_question(window: Window, engine: ScriptedEngine) -> None:
    pictures = [image_file(encoded(photo(37, height), "PNG"), f"{height}.png") for height in (23, 29)]
    folder = window.make_project(Project(), pictures[0], text_file("a.txt", "Alpha"), pictures[1])
    window.chat.start_new(folder.id)
    window.ask("One")
    window.ask("Two")
    first, _, second = engine.last_request.messages
    assert [image.digest for image in first.images] == [file.digest for file, _ in pictures]
    line = "(Files of this project: 23.png, a.txt, 29.png)"
    assert first.content == f'<file name="a.txt">\nAlpha\n</file>\n\n{line}\n\nOne'
    assert not any(first.image_positions)
    assert second.images == ()
    (opening,) = engine.last_request.shared
    assert opening.images == first.images


def test_texts_are_stored_once_and_go_with_their_last_use(window: Window) -> None:
    file = text_file("a.txt", "Alpha")
    texts = lambda: [row[0] for row in window.store.rows("SELECT text FROM file_texts")]  # noqa: E731
    folder = window.make_project(Project(), file)
    chat = window.store.create_conversation("Soup")
    message = window.store.add_message(chat.id, None, Role.USER, "Hi", files=[file])
    assert texts() == ["Alpha"]
    order = window.chats.order
    order.set_project(folder, Project(), ())
    assert texts() == ["Alpha"]
    window.store.execute("DELETE FROM messages WHERE id = ?", message.id)
    assert texts() == []
    window.chats.undo()
    assert texts() == ["Alpha"]
    assert [each.name for each in order.folders[0].files] == ["a.txt"]
    order.delete_folder(order.folders[0])
    assert texts() == ["Alpha"]
    order.erase((), window.store.organiser.deleted_folders())
    assert texts() == []


def test_undo_brings_back_no_text_of_a_project_that_is_erased(window: Window) -> None:
    folder = window.make_project(RHYME, text_file("a.txt", "Alpha"))
    order = window.chats.order
    order.set_project(folder, RHYME, ())
    order.delete_folder(order.folders[0])
    order.erase((), window.store.organiser.deleted_folders())
    while order.history.last:
        window.chats.undo()
    assert window.store.rows("SELECT text FROM file_texts") == []


@given(st.lists(st.lists(st.sampled_from("abc"), max_size=3), max_size=6))
@settings(max_examples=12)
def test_a_text_is_stored_exactly_while_something_has_it(changes: list[list[str]]) -> None:
    """Whatever files two folders get one after the other."""
    with TemporaryDirectory() as folder, closing(ConversationStore(Path(folder) / "chats.db")) as store:
        folders = [store.organiser.create_folder(name) for name in ("One", "Two")]
        for index, names in enumerate(changes):
            files = [text_file(name, name * 3) for name in names]
            store.organiser.set_project(folders[index % 2].id, Project(), files)
            listed = store.organiser.folders()
            assert [file.name for file in listed[index % 2].files] == names
            stored = {text for (text,) in store.rows("SELECT text FROM file_texts")}
            assert stored == {each.name * 3 for folder in listed for each in folder.files}


TEXTS = st.text("ab<>/ \n", max_size=12)
ROLES = st.lists(st.sampled_from([Role.USER, Role.ASSISTANT]), max_size=6)


@given(
    roles=ROLES,
    texts=st.lists(TEXTS, min_size=7, max_size=7),
    whole=st.lists(TEXTS, max_size=3),
    typed=TEXTS,
    summary=TEXTS,
    system=TEXTS,
)
@settings(max_examples=40)
def test_no_whole_file_of_a_project_is_lost_or_doubled(
    roles: list[Role], texts: list[str], whole: list[str], typed: str, summary: str, system: str
) -> None:
    """Each stands once, before the chat's first turn, and a line has the names of all."""
    path = [Message(index + 1, 1, index or None, role, texts[index]) for index, role in enumerate(roles)]
    if path and summary:
        path[0] = replace(path[0], context_cut=ContextCut(summary))
    files = [text_file(f"w{index}", f"whole {index} {text}") for index, text in enumerate(whole)]
    text_of = dict(files).__getitem__
    prompt = ChatPrompt(path, system, typed, files=[*dict(files)])
    complete = prompt.with_files(text_of, shared=ProjectFiles(text_of).texts(prompt, "", 10**6, len, lambda: None))
    turns = complete.turns()
    said = "\n\n".join(turn.content for turn in turns if turn.role is not Role.SYSTEM)
    blocks = [block_of(file, text) for file, text in files]
    names = [f"(Files of this project: {', '.join(file.name for file, _ in files)})"] if files else []
    assert said.startswith("\n\n".join([*blocks, *names]))
    assert all(said.count(block) == blocks.count(block) for block in blocks)
    assert not any(block in turn.content for turn in turns if turn.role is Role.SYSTEM for block in blocks)
    assert [turn.role for turn in complete.beginning][-1:] == ([Role.USER] if blocks else [])
    if complete.beginning and not (path and summary.strip()):
        assert turns[0].content.startswith(complete.beginning[0].content)


def words_of(messages: Sequence[ChatMessage]) -> int:
    return sum(len(each.content.split()) for each in messages)


def passages_for(texts: Sequence[str], *questions: str, limit: int = 4096, for_all: bool = False) -> ProjectTexts:
    """Return what files add that are all too long to be whole; the last question is typed."""
    files = dict(text_file(f"file {number}.txt", text) for number, text in enumerate(texts))
    path = [Message(number, 1, None, Role.USER, text) for number, text in enumerate(questions[:-1], 1)]
    prompt = ChatPrompt(path, "", questions[-1], files=[*files])
    return ProjectFiles(files.__getitem__).texts(prompt, "", limit, words_of, lambda: None, for_all=for_all)


SCRIPTS = {
    "Latin": ("the shop opens at nine and the staff meets every week ", "zebra{}"),
    "Cyrillic": ("магазин открывается в девять каждую неделю ", "зебра{}"),
    "Chinese": ("商店每天早晨九点开门 职员每周开会讨论货架 ", "斑馬{}"),
}


@given(
    script=st.sampled_from(sorted(SCRIPTS)),
    number=st.integers(1, 20),
    rules=st.integers(1, 2),  # three passages of Latin have more words than an eighth of the context
    seed=st.integers(0, 1000),
    words=st.integers(0, 400),
)
@settings(max_examples=40)
def test_each_passage_that_alone_has_a_word_of_the_question_is_there(
    script: str, number: int, rules: int, seed: int, words: int
) -> None:
    """For any place of the word, number of files and script; and all passages take an eighth of the context at most."""
    rng = Random(seed)
    filler, form = SCRIPTS[script]
    paragraphs = [[(filler * 40)[:1000]] * (200 // number + 20) for _ in range(number)]
    names = [form.format("abcdefghi"[rule]) for rule in range(rules)]
    for rule in names:
        own = rng.choice(paragraphs)
        place = rng.randrange(len(own))
        own[place] = f"{own[place]} {rule}"
    question = (filler * 100).split()[:words]
    for rule in names:
        question.insert(rng.randint(0, len(question)), rule)
    found = passages_for(["\n\n".join(each) for each in paragraphs], " ".join(question)).passages[None]
    assert all(rule in found for rule in names)
    assert words_of((ChatMessage(Role.USER, found),)) <= 4096 // 8


def named_in(prompt: str) -> tuple[str, ...]:
    """Return the passages of a prompt, by the marks around them."""
    return tuple(f"{name}: {part}" for name, part in re.findall(r'<file name="(.*?)" part="(passage.*?)">', prompt))


def test_a_reply_names_the_passages_that_its_question_got(window: Window, engine: ScriptedEngine) -> None:
    """Those of the prompt that the engine read: after a restart too, for each question and each answer to it."""
    long = [
        text_file(f"{name}.txt", "\n\n".join(f"{name}-{'some' * 9}-{number} " * 25 for number in range(60)))
        for name in "ab"
    ]
    folder = window.make_project(Project(), text_file("short.txt", "Short"), *long)
    outside = window.ask("a 7").made_with
    assert outside
    assert outside.passages == ()
    window.chat.start_new(folder.id)
    for act in (
        lambda: window.send("Where is a 7?"),
        lambda: window.send("And b 30?"),
        lambda: window.controller.regenerate(window.last.id),
        lambda: window.edit_message(window.chat.path[-2].id, "b 2"),
        lambda: window.continue_reply(window.last.id),
    ):
        act()
        window.wait_until_idle()
        question = next(each for each in reversed(engine.last_request.messages) if each.role is Role.USER)
        stored = window.store.message(window.last.id).made_with
        assert stored == window.last.made_with
        assert stored
        assert stored.passages == named_in(question.content) != ()


def test_many_files_share_an_eighth_and_all_are_named() -> None:
    texts = ["\n\n".join(f"Lamp {part} costs {number} pounds. " * 24 for part in range(60)) for number in range(20)]
    found = passages_for(texts, "What does lamp 7 cost?")
    assert tuple(f"{file.name}: {file.taken}" for file in found.found) == named_in(found.passages[None] or "")
    assert [file.name for file in found.in_passages] == [f"file {number}.txt" for number in range(20)]
    assert words_of((ChatMessage(Role.USER, found.passages[None]),)) <= 4096 // 8
    assert "Lamp 7" in found.passages[None]
    assert all(f"file {number}.txt (in passages)" in found.opening for number in range(20))


def test_a_question_that_matches_nothing_gets_beginnings_and_a_name_is_a_word() -> None:
    texts = [f"Beginning of {number}.\n\n" + f"{'word ' * 200}\n\n" * 30 for number in range(2)]
    assert "Beginning of 0" in passages_for(texts, "Fasse zusammen!").passages[None]
    found = passages_for(texts, "Summarise 1.txt").passages[None]
    assert "Beginning of 1" in found
    assert "Beginning of 0" not in found


def test_a_second_question_also_looks_for_the_words_of_the_first() -> None:
    texts = [
        f"{'word ' * 200}\n\n" * 10 + "The first lamp, the second lamp: red, blue.\n\n" + f"{'word ' * 200}\n\n" * 10
    ]
    passages = passages_for(texts, "What colour is the lamp?", "And then?").passages
    assert [*passages] == [None], "those of the last question alone"
    assert "red, blue" in passages[None]
    both = passages_for(texts, "What colour is the lamp?", "And then?", for_all=True).passages
    assert [*both] == [1, None], "a cache that cannot go back needs them where they were"
