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


def test_chatgpts_archive_is_read_as_it_is_downloaded_also_in_parts(
    store: ConversationStore, import_files: ImportFiles, write_json: WriteJson, tmp_path: Path
):
    with zipfile.ZipFile(tmp_path / "export.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("chat.html", "<html></html>")
        archive.writestr("user.json", "{}")
        for number in range(2):
            node = chatgpt_node("q", None, "user", f"Question {number}")
            path = write_json(f"part-{number}.json", [chatgpt_chat(node, title=f"Part {number}")])
            archive.write(path, f"conversations-00{number}.json")
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
    assert sorted(file.source for file in report.files) == ["Jan", "LM Studio"]
    assert len(store.conversations()) == 2


def test_messages_of_jan_without_a_thread_get_their_title_from_the_question(
    store: ConversationStore, import_files: ImportFiles, tmp_path: Path
):
    (tmp_path / "messages.jsonl").write_text(json.dumps(jan_line("m0", "user", jan_text("Why is soup hot?"))))
    assert import_files(tmp_path / "messages.jsonl").is_complete
    assert only_chat(store)[0] == "Why is soup hot?"


def imported(store: ConversationStore, import_files: ImportFiles, path: Path) -> tuple[list[str], str]:
    """Import one chat; return the texts of its messages and what the report says was left out."""
    report = import_files(path)
    assert report.is_complete
    (conversation,) = store.conversations()
    return [each.text for each in store.messages(conversation.id)], "".join(each.parts for each in report.without)


@pytest.mark.parametrize(
    ("marked", "text"),
    [
        ('by \ue200entity\ue202["book","Dune","novel"]\ue201.', "by Dune."),
        ('by \ue200entity\ue202["Dune"]\ue201.', "by Dune."),
        ("see \ue200url\ue202the page\ue202https://example.org/a\ue201!", "see [the page](https://example.org/a)!"),
        ("see \ue200url\ue202the page\ue202turn0search1\ue201!", "see the page!"),
        ("more: \ue200navlist\ue202Further news\ue202turn0news1,turn0news2\ue201", "more: Further news"),
        ('it \ue200finance\ue202{"ticker": "AAPL", "market": "US"}\ue201 rose', "it AAPL rose"),
        ("\ue203A claim\ue204 stands.\ue206", "A claim stands."),
        ("known \ue200cite\ue202turn0search0\ue202turn1view2\ue201, and", "known, and"),
        ("known\ue200filecite\ue202turn0file3\ue202L1-L9\ue201", "known"),
        ("cut \ue200cite\ue202turn0sea", "cut"),
    ],
)
def test_the_words_in_marks_of_chatgpt_stay(
    store: ConversationStore, import_files: ImportFiles, write_json: WriteJson, marked: str, text: str
):
    chat = chatgpt_chat(chatgpt_node("q", None, "user", "Q"), chatgpt_node("a", "q", "assistant", marked))
    texts, _ = imported(store, import_files, write_json("conversations.json", [chat]))
    assert texts == ["Q", text]


@pytest.mark.parametrize(
    ("function", "call", "text"),
    [
        ("create_textdoc", {"name": "ode", "type": "document", "content": "Dear Sam"}, "**ode**\n\nDear Sam\n\nDone."),
        ("create_textdoc", {"name": "a", "type": "code/python", "content": "x = 1"},
         "**a**\n\n````python\nx = 1\n````\n\nDone."),
        ("update_textdoc", {"updates": [{"pattern": ".*", "replacement": "New"}]}, "**Canvas**\n\nNew\n\nDone."),
        ("update_textdoc", {"updates": [{"pattern": "a", "replacement": "b"}]}, "Done."),
        ("comment_textdoc", {"comments": [{"pattern": "a", "comment": "b"}]}, "Done."),
    ],
)  # fmt: skip
@pytest.mark.parametrize("as_text", [False, True])
def test_a_canvas_of_chatgpt_is_kept_or_counted(
    store: ConversationStore,
    import_files: ImportFiles,
    write_json: WriteJson,
    function: str,
    call: dict[str, object],
    text: str,
    as_text: bool,
):
    code = json.dumps(call)
    content = {"content_type": "text", "parts": [code]} if as_text else {"content_type": "code", "text": code}
    chat = chatgpt_chat(
        chatgpt_node("q", None, "user", "Q"),
        chatgpt_node("c", "q", "assistant", content=content, recipient=f"canmore.{function}"),
        chatgpt_node("t", "c", "tool", "Successfully created"),
        chatgpt_node("a", "t", "assistant", "Done."),
    )
    texts, without = imported(store, import_files, write_json("conversations.json", [chat]))
    assert texts == ["Q", text]
    assert ("canvas" in without) == (text == "Done.")


def test_a_research_report_of_chatgpt_is_kept(
    store: ConversationStore, import_files: ImportFiles, write_json: WriteJson
):
    report = {"report_message": {"content": {"content_type": "text", "parts": ["# Findings"]}}}
    metadata = {"chatgpt_sdk": {"widget_state": json.dumps(report)}}
    chat = chatgpt_chat(
        chatgpt_node("q", None, "user", "Q"), chatgpt_node("t", "q", "tool", "started", metadata=metadata)
    )
    assert imported(store, import_files, write_json("conversations.json", [chat]))[0] == ["Q", "# Findings"]


def test_only_a_system_message_before_the_first_question_is_the_prompt(
    store: ConversationStore, import_files: ImportFiles, write_json: WriteJson
):
    chat = chatgpt_chat(
        chatgpt_node("s", None, "system", "Be brief."),
        chatgpt_node("q", "s", "user", "Q"),
        chatgpt_node("s2", "q", "system", "You are in voice mode."),
        chatgpt_node("odd", "s2", "assistant", content={"content_type": "sonic_webpage", "url": "x"}),
        chatgpt_node("a", "odd", "assistant", "A"),
    )
    texts, without = imported(store, import_files, write_json("conversations.json", [chat]))
    assert texts == ["Q", "A"]
    assert store.conversations()[0].system_prompt == "Be brief."
    assert without == "1 other message, 1 system message"


def test_calls_and_system_messages_of_lm_studio_are_named(
    store: ConversationStore, import_files: ImportFiles, write_json: WriteJson
):
    chat = lm_studio_chat()
    chat["perChatPredictionConfig"]["fields"] = []
    system = {"type": "singleStep", "role": "system", "content": [{"type": "text", "text": "Be terse."}]}
    chat["messages"].insert(0, {"versions": [system], "currentlySelected": 0})
    chat["messages"].append({"versions": [system | {"content": "Later"}], "currentlySelected": 0})
    calls = [{"type": kind, "callId": 1, "content": "[]"} for kind in ("toolCallRequest", "toolCallResult")]
    chat["messages"][2]["versions"][0]["steps"].append({"type": "contentBlock", "content": calls})
    texts, without = imported(store, import_files, write_json("1.conversation.json", chat))
    assert (len(texts), store.conversations()[0].system_prompt) == (3, "Be terse.")
    assert without == "1 image, 1 tool call, 1 tool result, 1 system message"


def test_calls_in_the_metadata_of_jan_are_named(store: ConversationStore, import_files: ImportFiles, tmp_path: Path):
    calls = [{"tool": {"id": "1"}, "response": {"content": []}}, {"tool": {"id": "2"}, "response": None}]
    lines = [
        jan_line("m0", "user", jan_text("Q")),
        jan_line("m1", "assistant", jan_text("A")) | {"metadata": {"tool_calls": calls}},
        jan_line("m2", "system", jan_text("Later")),
        jan_line("m3", "narrator", jan_text("?")),
    ]
    path = tmp_path / "messages.jsonl"
    path.write_text("\n".join(json.dumps(each) for each in lines))
    texts, without = imported(store, import_files, path)
    assert texts == ["Q", "A"]
    assert without == "2 tool calls, 1 tool result, 1 system message, 1 damaged message"


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
    _, reply, *_ = store.messages(chat.id)
    assert (reply.text, reply.siblings, reply.model) == (
        "<think>\nIn short\n\nThey want sun\n</think>\n\nTo Rome.",
        2,
        "m",
    )
