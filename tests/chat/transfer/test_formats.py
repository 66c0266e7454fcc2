"""Chats of other apps, in their file formats."""

import json
import zipfile
from pathlib import Path

import pytest

from rdchat.chat.conversation import Message
from rdchat.chat.store import ConversationStore
from rdchat.inference.api import FinishReason, SamplingParams
from tests.chat.transfer.conftest import ImportFiles, ImportJson, WriteJson
from tests.chat.transfer.full_samples import FULL
from tests.chat.transfer.samples import (
    CHATGPT_TIME,
    chatgpt_chat,
    chatgpt_node,
    chatgpt_with_everything,
    claude_chat,
    jan_line,
    jan_text,
    lm_studio_chat,
    write_jan,
)


def only_chat(store: ConversationStore) -> tuple[str, list[Message]]:
    (conversation,) = store.conversations()
    return conversation.title, store.messages(conversation.id)


def test_a_chat_of_chatgpt_keeps_its_words_its_thoughts_and_the_edited_question(
    store: ConversationStore, import_json: ImportJson
):
    report = import_json("conversations.json", [chatgpt_with_everything()])
    assert report.is_complete
    assert report.messages == 4
    title, (question, reply) = only_chat(store)
    assert title == "Rivers"
    assert question.text == "Which river is the longest one?"
    assert (question.sibling, question.siblings, question.created_at) == (1, 2, CHATGPT_TIME)
    assert reply.text == "<think>\nLength\n\nThe Nile is long.\n</think>\n\nThe **Nile**, at 6,650 km."
    assert reply.model == "gpt-5-thinking"
    assert [each.text for each in store.select_sibling(question.id, -1)] == ["Which river is longest?", "The Amazon."]
    (without,) = report.without
    assert without.parts == "1 custom instruction, 1 image, 1 tool call, 1 tool result"


@pytest.mark.parametrize("app", ["ChatGPT", "Open WebUI"])
def test_a_chat_that_was_archived_there_goes_to_the_archive(
    store: ConversationStore, import_json: ImportJson, app: str
):
    """It came into the list, and the report did not say so."""
    chats = []
    for number, archived in enumerate((True, False)):
        title = "Kept" if archived else "Open"
        if app == "ChatGPT":
            chat = chatgpt_chat(chatgpt_node("q", None, "user", f"Question {number}"), title=title)
            chats.append(chat | {"is_archived": archived})
        else:
            messages = [{"id": "q", "parentId": None, "role": "user", "content": f"Question {number}"}]
            chats.append({"title": title, "archived": archived, "chat": {"messages": messages}})
    report = import_json("conversations.json", chats)
    assert report.files[0].source == app
    assert (len(report.chats), report.archived_text, report.without) == (2, " 1 chat went to the archive.", ())
    found = store.find_chats(report.chats)
    assert {chat.title: chat.archived for chat in found.values()} == {"Kept": True, "Open": False}


def test_chatgpts_archive_is_read_as_it_is_downloaded_also_in_parts(
    store: ConversationStore, import_files: ImportFiles, tmp_path: Path
):
    with zipfile.ZipFile(tmp_path / "export.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("chat.html", "<html></html>")
        archive.writestr("user.json", "{}")
        for number in range(2):
            node = chatgpt_node("q", None, "user", f"Question {number}")
            chats = [chatgpt_chat(node, title=f"Part {number}")]
            archive.writestr(f"conversations-00{number}.json", json.dumps(chats))
    report = import_files(tmp_path / "export.zip")
    assert report.is_complete
    assert [file.source for file in report.files] == ["ChatGPT"]
    assert {each.title for each in store.conversations()} == {"Part 0", "Part 1"}


def test_a_chat_of_lm_studio_keeps_versions_thinking_and_settings(store: ConversationStore, import_json: ImportJson):
    report = import_json("1711800000000.conversation.json", lm_studio_chat())
    assert report.is_complete
    (conversation,) = store.conversations()
    assert (conversation.title, conversation.created_at) == ("A picture", 1_711_800_000)
    assert conversation.updated_at == 1_711_800_002
    assert conversation.system_prompt == "Look closely."
    assert conversation.sampling == SamplingParams(temperature=0.2, top_p=0.9)
    question, reply, last = store.messages(conversation.id)
    assert (question.text, last.text) == ("What is this?", "Sure?")
    assert reply.text == "<think>\nWhiskers.\n</think>\n\nA cat."
    assert (reply.model, reply.finish_reason, reply.siblings) == ("Qwen 3", FinishReason.LENGTH, 2)
    assert [each.text for each in store.select_sibling(reply.id, 1)] == ["What is this?", "A dog."]
    assert report.without[0].parts == "1 image"


def test_a_chat_of_lm_studio_is_known_though_its_first_message_is_damaged(import_json: ImportJson):
    chat = lm_studio_chat()
    chat["messages"][0] = None
    (report,) = import_json("1.conversation.json", chat).files
    assert (report.source, report.messages) == ("LM Studio", 3)


def test_a_chat_of_lm_studio_02_is_refused_with_what_to_do(
    store: ConversationStore, import_files: ImportFiles, tmp_path: Path
):
    (tmp_path / "1700000000000.chat.json").write_text('{"messages": [{"role": "user", "content": "Hi"}]}')
    (report,) = import_files(tmp_path / "1700000000000.chat.json").files
    assert report.problem == "1700000000000.chat.json is from LM Studio 0.2. Open it in LM Studio 0.3 or later first."
    assert not store.conversations()


@pytest.mark.parametrize("named", ["thread.json", "messages.jsonl", "."])
def test_a_thread_of_jan_is_read_by_either_file_or_its_folder(
    store: ConversationStore, import_files: ImportFiles, tmp_path: Path, named: str
):
    report = import_files(write_jan(tmp_path / "threads" / "t1") / named)
    assert report.is_complete
    (conversation,) = store.conversations()
    assert (conversation.title, conversation.system_prompt) == ("Soup", "You cook.")
    assert (conversation.created_at, conversation.updated_at) == (1_750_000_000, 1_750_000_009)
    assert conversation.sampling == SamplingParams(temperature=1.0, presence_penalty=0.5, max_tokens=50)
    question, reply = store.messages(conversation.id)
    assert (question.text, question.created_at) == ("How?", 1_750_000_000)
    assert reply.text == "<think>\nBoil it?\n</think>\n\nBoil it."
    assert (reply.model, reply.finish_reason) == ("gemma-3-4b", FinishReason.CANCELLED)
    assert report.without[0].parts == "1 image"


def test_a_folder_gives_the_chats_of_every_app_in_it(
    store: ConversationStore, import_files: ImportFiles, write_json: WriteJson, tmp_path: Path
):
    write_jan(tmp_path / "in" / "threads" / "t1")
    write_json("in/1.conversation.json", lm_studio_chat())
    write_json("in/notes.json", {"not": "a chat"})
    report = import_files(tmp_path / "in")
    assert report.is_complete
    assert sorted(file.source for file in report.files) == ["", "Jan", "LM Studio"]
    assert [(each.title, each.parts) for each in report.files[0].without] == [("in", "1 file: notes.json")]
    assert len(store.conversations()) == 2


def test_messages_of_jan_without_a_thread_get_their_title_from_the_question(
    store: ConversationStore, import_files: ImportFiles, tmp_path: Path
):
    (tmp_path / "messages.jsonl").write_text(json.dumps(jan_line("m0", "user", jan_text("Why is soup hot?"))))
    assert import_files(tmp_path / "messages.jsonl").is_complete
    assert only_chat(store)[0] == "Why is soup hot?"


def test_a_chat_of_claude_keeps_its_branches_thoughts_and_attached_texts(
    store: ConversationStore, import_json: ImportJson
):
    report = import_json("conversations.json", [claude_chat()])
    assert [file.source for file in report.files] == ["Claude"]
    title, (question, reply, last) = only_chat(store)
    assert title == "Rivers"
    assert question.text == "A river?\n\n[notes.txt]\n\nThe Elbe is long."
    assert (reply.text, reply.siblings) == ("<think>\nWhich?\n</think>\n\nThe Elbe.", 2)
    assert last.text == "And this?\n\n[map.png]"
    assert [without.parts for without in report.without] == ["1 file, 1 tool call, 1 tool result"]


def test_a_chat_of_deepseek_is_told_from_one_of_chatgpt(store: ConversationStore, import_json: ImportJson):
    report = import_json("conversations.json", [FULL["DeepSeek"]])
    assert [file.source for file in report.files] == ["DeepSeek"]
    _, (question, reply, *_) = only_chat(store)
    assert (question.text, reply.model) == ("A river?", "deepseek-chat")
    assert reply.text == "<think>\nWhich one\n</think>\n\nThe Elbe.\n\nWords of a tip"


def test_a_chat_of_open_webui_shows_the_reply_that_was_chosen(store: ConversationStore, import_json: ImportJson):
    report = import_json("all-chats-export.json", [FULL["Open WebUI"]])
    assert [file.source for file in report.files] == ["Open WebUI"]
    (chat,) = store.conversations()
    assert (chat.title, chat.system_prompt) == ("Trip", "You are a guide.")
    assert chat.sampling == SamplingParams(temperature=0.2, max_tokens=7, stop=("The end",))
    _, reply, *_ = store.messages(chat.id)
    assert (reply.text, reply.siblings, reply.model) == (
        "<think>\nIn short\n\nThey want sun\n</think>\n\nTo Rome.",
        2,
        "m",
    )
