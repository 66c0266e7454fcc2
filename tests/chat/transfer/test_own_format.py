"""Our JSON restores what was exported, and Markdown shows it."""

import json
import zipfile
from dataclasses import replace
from pathlib import Path
from unicodedata import normalize

import pytest

from rdchat.chat.attachments.attached_file import FileKind, ReadFile, attached
from rdchat.chat.conversation import Drafting, MadeWith, MessageStatus, OwnOptions, Thinking
from rdchat.chat.option_order import OptionOrder
from rdchat.chat.reply_trace import encode
from rdchat.chat.settings import Settings
from rdchat.chat.storage import FullChat, read_chat, reading
from rdchat.chat.store import ConversationStore
from rdchat.chat.summaries import ContextCut
from rdchat.chat.transfer import source_files, transfer_process
from rdchat.errors import StorageError
from rdchat.inference.api import (
    AnswerShape,
    DraftSettings,
    FinishReason,
    Mode,
    Role,
    SamplingParams,
    ShapeKind,
    ThinkingChoice,
)
from tests.chat.conftest import StartProcess
from tests.chat.traces import STATISTICS, drafted_trace
from tests.chat.transfer import tasks
from tests.chat.transfer.conftest import ImportFiles, ImportJson, WriteJson
from tests.chat.transfer.samples import ours
from tests.stores import finish_message


@pytest.fixture
def full_chat(store: ConversationStore) -> int:
    """A chat with all there can be: options, alternatives of both kinds, figures, a trace, a failed reply."""
    chat = store.create_conversation("All: <there> is")
    sampling = SamplingParams(temperature=0.1, stop=("END",))
    options = replace(chat, system_prompt="Be *brief*.", sampling=sampling, thinking_choice=ThinkingChoice.LOW,
                      own=OwnOptions("some", 300, DraftSettings(), ("answer_shape",)),
                      answer_shape=AnswerShape(ShapeKind.SCHEMA, "{}"))  # fmt: skip
    store.set_chat_options(options)
    question = store.add_message(chat.id, None, Role.USER, "Why?\n\n# A heading")
    failed = store.add_message(chat.id, question.id, Role.ASSISTANT, "", status=MessageStatus.STREAMING, model="tiny")
    finish_message(store, failed.id, "Hm", MessageStatus.FAILED, error="No memory.")
    reply = store.add_message(
        chat.id, question.id, Role.ASSISTANT, "", status=MessageStatus.STREAMING, model="tiny", seed=2**64 - 1
    )
    finish_message(store,
        reply.id, "<think>\nwell\n</think>\n\nBecause </s> so.", MessageStatus.COMPLETE,
        finish_reason=FinishReason.LENGTH, statistics=STATISTICS,
        drafting=Drafting(Mode.DRAFTER, "", "drafters/tiny"), control_offsets=(33,),
        thinking=Thinking(begun=True, ms=1500.0),
    )  # fmt: skip
    store.save_trace(reply.id, encode(drafted_trace(3)), onward=False)
    store.set_context_cut(reply.id, ContextCut("So far, so good.", "tiny"))
    store.add_message(
        chat.id, question.id, Role.ASSISTANT, "Mine", model="tiny", edited=True,
        made_with=MadeWith(SamplingParams(temperature=0.2), "Rhyme.", once=True),
    )  # fmt: skip
    deleted = store.add_message(chat.id, question.id, Role.ASSISTANT, "Deleted")
    store.message_trash.delete(deleted.id)
    store.select_sibling(reply.id, 0)
    store.add_message(chat.id, None, Role.USER, "Why not?")
    store.select_sibling(question.id, 0)
    around = store.organiser.create_folder("Work")
    store.organiser.move(chat.id, store.organiser.create_folder("Mail", around.id).id)
    store.organiser.set_pinned(chat.id, pinned=True)
    return chat.id


def stored(path: Path, conversation: int) -> FullChat:
    with reading(path) as connection:
        return read_chat(connection, conversation)


def export(
    store: ConversationStore, path: Path, kind: str = "json", *chats: int, details: bool = True
) -> dict[str, object]:
    return tasks.export(store.path, path, kind, chats or None, details=details)


def markdown(store: ConversationStore, chat: int, folder: Path, *, details: bool = True) -> str:
    export(store, folder / "chat.md", "markdown", chat, details=details)
    return (folder / "chat.md").read_text()


def comparable(chat: FullChat) -> FullChat:
    """Return a chat without what an import makes anew: counters of what was shown, marks, and when it was pinned.

    It also leaves its preset and its draft settings out, which are this computer's.
    """
    order = sorted(message.activated for message in chat.messages)
    about = chat.conversation
    pinned_at = None if about.pinned_at is None else 0.0
    about = replace(about, pinned_at=pinned_at, own=replace(about.own, preset=None, draft=None))
    messages = (replace(each, activated=order.index(each.activated), origin=None) for each in chat.messages)
    return replace(chat, conversation=about, messages=tuple(messages))


def test_a_chat_comes_back_whole(store: ConversationStore, full_chat: int, import_files: ImportFiles, tmp_path: Path):
    before = stored(store.path, full_chat)
    assert export(store, tmp_path / "chats.json") == {"path": str(tmp_path / "chats.json"), "chats": 1}
    store.delete_conversation(full_chat)
    report = import_files(tmp_path / "chats.json")
    assert report.is_complete
    assert not report.without
    assert comparable(stored(store.path, report.chats[0])) == comparable(before)
    assert before.conversation.pinned_at is not None
    assert before.folder == ("Work", "Mail")
    assert len(store.organiser.folders()) == 2, "those of these names are taken"
    shown = [each.text for each in store.messages(report.chats[0])]
    assert shown == ["Why?\n\n# A heading", "<think>\nwell\n</think>\n\nBecause </s> so."]


def test_options_of_a_file_leave_out_what_a_chat_must_have_and_what_belongs_to_a_computer(
    store: ConversationStore, import_json: ImportJson
) -> None:
    own = {"preset": "7", "thinking_tokens": 5, "draft": {}, "cleared": ["sampling", "system_prompt", "answer_shape"]}
    chat = {"title": "Foreign", "own": own, "messages": [{"role": "user", "text": "Hello"}]}
    report = import_json("chats.json", ours(chat))
    read = store.conversation(report.chats[0])
    assert read.own == OwnOptions(None, 5, None, ("answer_shape",))
    assert OptionOrder(Settings()).effective_values(read).sampling == SamplingParams()


def test_later_fields_are_passed_over_and_figures_that_cannot_be_are_told(
    store: ConversationStore, full_chat: int, import_files: ImportFiles, tmp_path: Path
):
    export(store, tmp_path / "chats.json")
    data = json.loads((tmp_path / "chats.json").read_text())
    assert (data["format"], data["version"]) == ("rdchat chats", 1)
    data["folders"] = [{"name": "Work"}]
    data["chats"][0] |= {"pinned": True, "title": "Later"}
    data["chats"][0]["messages"][0]["attachments"] = [1]
    (traced,) = (each for each in data["chats"][0]["messages"] if "trace" in each)
    assert traced["trace"][0]["version"] == 1, "others can read it"
    traced |= {"trace": [{"version": 1, "begins_at": 0, "tokens": [["x"]]}], "statistics": {"rounds": -4}}
    (tmp_path / "chats.json").write_text(json.dumps(data))
    report = import_files(tmp_path / "chats.json")
    assert report.is_complete
    assert report.without[0].parts == "1 reply's statistics, 1 trace"
    assert "Later" in {each.title for each in store.conversations()}


def test_a_chat_whose_files_say_something_else_is_another_one(import_files: ImportFiles, write_json: WriteJson):
    def chat(name: str, *texts: str) -> Path:
        files = [{"name": name, "kind": "text", "text": text} for text in texts]
        message = {"parent": None, "role": "user", "text": "Summarise", "files": files}
        return write_json(name, ours({"messages": [message]}))

    report = import_files(chat("a", "A"), chat("b", "B"), chat("c", "A", "B"), chat("d"))
    assert (len(report.chats), report.already_here) == (4, 0)
    again = import_files(chat("a", "A"), chat("c", "A", "B"), chat("d"))
    assert (len(again.chats), again.already_here) == (0, 3)


def test_markdown_is_the_path_that_is_shown(store: ConversationStore, full_chat: int, tmp_path: Path):
    assert markdown(store, full_chat, tmp_path, details=False) == (
        "# All: <there> is\n\n## You\n\nWhy?\n\n# A heading\n\n## tiny\n\n> **Thinking**\n>\n> well\n\n"
        "Because </s> so.\n\n---\n\n*The model gets a summary of the 2 messages above, by tiny:*\n\n"
        "> So far, so good.\n\n---\n"
    )


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("```python\nprint(1)", "\n```"),
        ("- One:\n  ~~~~\n  ```\n  ~~~", "\n  ~~~~"),
        ("```\na\n```\nThen\n````md\n```\nb\n```", "\n````"),
        ("```\na\n```", ""),
        ("``` a ``` is no block", ""),
        ("1. One\n    ```\n    a\n    ```", ""),
    ],
)
def test_code_that_broke_off_ends_with_its_message(store: ConversationStore, tmp_path: Path, text: str, end: str):
    chat = store.create_conversation("Code")
    question = store.add_message(chat.id, None, Role.USER, "Go")
    reply = store.add_message(chat.id, question.id, Role.ASSISTANT, text, status=MessageStatus.INTERRUPTED)
    store.add_message(chat.id, reply.id, Role.USER, "More")
    written = markdown(store, chat.id, tmp_path, details=False)
    assert f"\n\n{text}{end}\n\n*Interrupted*\n\n## You\n\nMore\n" in written


def test_markdown_says_what_is_cut_edited_and_made_once(store: ConversationStore, full_chat: int, tmp_path: Path):
    (first, second) = store.messages(full_chat)
    store.set_context_cut(second.id, None)
    store.set_context_cut(first.id, ContextCut())
    store.select_sibling(second.id, 1)
    text = markdown(store, full_chat, tmp_path)
    assert "\n\n---\n\n*The model does not get the message above.*\n\n---\n\n## tiny (edited)\n\nMine" in text
    assert "*Reply 3 of 3" in text
    assert "for this reply alone: temperature 0.2; system prompt “Rhyme.”" in text


def test_a_summary_comes_back_with_its_origin_and_markdown_names_it(
    store: ConversationStore, full_chat: int, tmp_path: Path, import_files: ImportFiles
):
    file = attached(ReadFile("prices.csv", FileKind.CSV, ()), "apples,3")
    question, reply = store.messages(full_chat)
    store.attach(question.id, [(file, "apples,3")])
    cut = ContextCut("Rye.", "qwen on studio", 1.5, edited=True, sources=("files__read", "studio"), files=(file,))
    store.set_context_cut(reply.id, cut)
    store.set_context_cut(question.id, ContextCut(shortens=True))
    export(store, tmp_path / "chat.json", "json", full_chat)
    store.delete_conversation(full_chat)
    import_files(tmp_path / "chat.json")
    (again,) = store.conversations()
    assert [each.context_cut for each in store.messages(again.id)] == [ContextCut(shortens=True), cut]
    store.restore_conversation(full_chat)
    text = markdown(store, full_chat, tmp_path)
    assert "by qwen on studio, edited by a person, with text from files__read, studio:*\n\n> Rye." in text
    assert "Why?" in text, "the messages themselves are there"


def test_markdown_has_settings_and_statistics_where_they_are_wanted(
    store: ConversationStore, full_chat: int, tmp_path: Path
):
    text = markdown(store, full_chat, tmp_path)
    assert "- Model: tiny\n- Sampling: temperature 0.1, top-p 0.95, at most 1,024 tokens, stop at 'END'" in text
    assert "## System prompt\n\nBe *brief*." in text
    assert "*Reply 2 of 3, " in text
    assert (
        "ended at the token limit, 41 tokens, 40.0 tokens/s, 0.03 s to the first token, drafted by drafter, 75%" in text
    )


def test_names_of_exported_files_differ_in_every_case_and_form_of_accents(store: ConversationStore, tmp_path: Path):
    """A Mac's file system takes two forms of a letter for one name, and the second file would replace the first."""
    letters = ["é", "É", "e\u0301", "e", "ß", "s", "K", "\u212a", "\uac00", "\u1100\u1161", ".", ""]
    titles = [first + second for first in letters for second in letters]
    titles += ["A/B: \0c?", "a b c", "con..", "ف" * 300]
    for title in titles:
        chat = store.create_conversation(f"T {title}")
        store.add_message(chat.id, None, Role.USER, f"From {title!r}.")
    export(store, tmp_path / "out", "folder")
    files = list((tmp_path / "out").iterdir())
    assert len({normalize("NFD", normalize("NFD", file.name).casefold()) for file in files}) == len(titles)
    words = "".join(file.read_text() for file in files)
    assert all(f"From {title!r}." in words for title in titles)
    with pytest.raises(StorageError, match="already exists"):
        export(store, tmp_path / "out", "folder")


def test_an_export_that_fails_leaves_nothing(store: ConversationStore, full_chat: int, tmp_path: Path):
    (tmp_path / "chats.json").write_text("mine")
    with pytest.raises(StorageError, match="There is no chat 99"):
        export(store, tmp_path / "chats.json", "json", full_chat, 99)
    assert (tmp_path / "chats.json").read_text() == "mine"
    assert not list(tmp_path.glob("part-*"))


READ = """
import resource, sys
from pathlib import Path
from rdchat.chat.transfer.transfer_process import recognised
from rdchat.chat.transfer.source_files import open_source

def memory():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)

before, found = memory(), 0
for source in open_source(Path(sys.argv[1]), []):
    for share, title, make in recognised(source)[1]:
        found += len(make().messages[0].text)
        assert 0 <= share < 1
print(found, memory() - before)
"""


@pytest.fixture
def many_chats(store: ConversationStore, tmp_path: Path) -> Path:
    """An export of 20 chats, 43 kB."""
    for number in range(20):
        chat = store.create_conversation(f"Chat {number}")
        store.add_message(chat.id, None, Role.USER, f"{number} of\n]}} 20 " * 140)
    export(store, tmp_path / "chats.json")
    for chat in store.conversations():
        store.delete_conversation(chat.id)
    return tmp_path / "chats.json"


@pytest.mark.parametrize("packed", [False, True])
def test_a_file_larger_than_is_held_in_memory_is_imported(
    store: ConversationStore, many_chats: Path, import_files: ImportFiles, monkeypatch: pytest.MonkeyPatch, packed: bool
):
    monkeypatch.setattr(source_files, "MAX_BYTES", 4000)
    if packed:
        with zipfile.ZipFile(many_chats.with_suffix(".zip"), "w", zipfile.ZIP_DEFLATED) as archive:
            archive.write(many_chats, many_chats.name)
    report = import_files(many_chats.with_suffix(".zip") if packed else many_chats)
    assert report.is_complete
    assert [each.title for each in store.conversations()] == [f"Chat {number}" for number in reversed(range(20))]
    assert store.messages(report.chats[-1])[0].text == "0 of\n]} 20 " * 140


@pytest.mark.slow
def test_a_file_of_many_chats_is_read_one_chat_at_a_time(tmp_path: Path, start_process: StartProcess):
    chat = {"title": "Long", "messages": [{"parent": None, "role": "user", "text": "word " * 200_000}]}
    line = json.dumps(chat)
    with (tmp_path / "chats.json").open("w") as file:
        file.write('{"format": "rdchat chats", "version": 1, "chats": [\n')
        file.write(",\n".join([line] * 100) + "\n]}\n")
    process = start_process(READ, tmp_path / "chats.json")
    assert process.stdout is not None
    found, took = map(int, process.stdout.read().split())
    assert found == 100_000_000
    assert took < 30 << 20, "of a file of 100 MB"


def test_json_of_ours_is_read_however_it_is_laid_out(many_chats: Path, import_files: ImportFiles):
    data = json.loads(many_chats.read_text())
    for indent in (None, 1):
        many_chats.write_text(json.dumps(data, indent=indent))
        report = import_files(many_chats)
        assert (report.is_complete, len(report.chats)) == (True, 20 if indent is None else 0)
    many_chats.write_text(json.dumps(data | {"chats": []}, indent=1))
    assert import_files(many_chats).is_complete


def test_a_file_that_is_damaged_throughout_is_given_up(
    store: ConversationStore, import_json: ImportJson, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(transfer_process, "_MAX_NOT_TAKEN", 3)
    chats = [{"title": "Good", "messages": [{"role": "user", "text": "Hi"}]}, *[{"title": "Odd"}] * 6]
    assert "more than 3 of its chats cannot be imported" in import_json("chats.json", ours(*chats)).files[0].problem
    assert not store.conversations()


def test_what_is_packed_is_held_against_its_checksum(
    store: ConversationStore, many_chats: Path, import_files: ImportFiles
):
    with zipfile.ZipFile(many_chats.with_suffix(".zip"), "w") as archive:
        archive.write(many_chats, many_chats.name)
    path = many_chats.with_suffix(".zip")
    path.write_bytes(path.read_bytes().replace(b"7 of", b"8 of", 1))
    (report,) = import_files(path).files
    assert "damaged archive" in report.problem
    assert not store.conversations()
