"""What exports of other programs have of late: trees without parents, blocks, thoughts, files and settings."""

import json
from pathlib import Path
from typing import Any

import pytest

from rdchat.chat.conversation import MessageStatus
from rdchat.chat.storage import FullChat
from rdchat.chat.store import ConversationStore
from rdchat.inference.api import FinishReason
from tests.chat.transfer.conftest import ImportFiles, ImportJson
from tests.chat.transfer.full_samples import (
    ADDRESS,
    CLAUDE_ROOT,
    FULL,
    LIBRECHAT_ROOT,
    READERS,
    deepseek_node,
    librechat_chat,
    librechat_message,
    librechat_tree,
    open_webui_chat,
    open_webui_message,
)
from tests.chat.transfer.samples import (
    CHATGPT_TIME,
    chatgpt_chat,
    chatgpt_node,
    claude_message,
    jan_line,
    jan_text,
    lm_studio_file,
    lm_studio_question,
    text_part,
)


def read(program: str, chat: Any) -> FullChat:
    return READERS[program](json.loads(json.dumps(chat)))


def shown(chat: FullChat) -> list[str]:
    """Return the texts on the path that is shown."""
    step = max(chat.messages, key=lambda message: message.activated)
    texts = [step.text]
    while step.parent_id is not None:
        step = chat.messages[step.parent_id]
        texts.insert(0, step.text)
    return texts


def counted(chat: FullChat) -> dict[str, int]:
    return {name: number for name, number in chat.without.items() if name and number}


def claude(*messages: dict[str, Any], **more: Any) -> FullChat:
    return read("Claude", {"name": "Boats", "chat_messages": list(messages)} | more)


def webui(*messages: dict[str, Any], **more: Any) -> FullChat:
    return read("Open WebUI", open_webui_chat(list(messages), messages[-1]["id"], **more))


QUESTION = open_webui_message("a", None, "user", "Where to?")


@pytest.mark.parametrize(
    "parents", [[None] * 4, [CLAUDE_ROOT] * 4, ["w", "x", "y", "z"], [CLAUDE_ROOT, None, None, "gone"]]
)
def test_messages_without_parents_follow_each_other(parents: list[str | None]):
    """Of Claude's exports of 2024 and 2025 only the last message was seen."""
    texts = ["How do boats float?", "They push water away.", "And ships?", "They do, too."]
    senders = ["human", "assistant"] * 2
    names = ["1", "2", "3", "4"]
    chat = claude(*map(claude_message, names, parents, senders, texts))
    assert shown(chat) == texts


def test_versions_whose_common_parent_is_missing_stay_versions():
    chat = claude(
        claude_message("1", CLAUDE_ROOT, "human", "one"),
        claude_message("3a", "2", "human", "three"),
        claude_message("3b", "2", "human", "another three"),
        claude_message("4", "3b", "assistant", "four"),
    )
    assert [message.parent_id for message in chat.messages] == [None, 0, 0, 2]


def test_another_version_of_the_first_question_stays_one():
    chat = webui(
        QUESTION, open_webui_message("b", "a", "assistant", "Rome"), QUESTION | {"id": "c", "content": "Where?"}
    )
    assert [message.parent_id for message in chat.messages] == [None, 0, None]


def test_messages_with_the_same_name_are_two():
    chat = claude(claude_message("1", None, "human", "one"), claude_message("1", None, "assistant", "two"))
    assert shown(chat) == ["one", "two"]


@pytest.mark.parametrize(
    ("call", "text", "parts"),
    [
        ({"command": "create", "id": "ode", "title": "An ode", "type": "text/markdown", "content": "# Ode"},
         "**An ode**\n\n# Ode", {}),
        ({"command": "rewrite", "type": "application/vnd.ant.code", "language": "python", "content": "print(1)\n"},
         "**Document**\n\n````python\nprint(1)\n\n````", {}),
        ({"title": "A page", "type": "text/html", "language": None, "content": "<p>"},
         "**A page**\n\n````html\n<p>\n````", {}),
        ({"title": "A note", "content": "Hi", "md_citations": [{"title": "A page"}]},
         "**A note**\n\nHi", {"“title” text": 1}),
        ({"title": 7, "type": ["x"], "language": {}, "content": "Hi"}, "**Document**\n\nHi", {}),
        ({"command": "update", "old_str": "Hi", "new_str": "Ho"}, "", {"tool call": 1}),
    ],
)  # fmt: skip
def test_documents_of_claude_are_kept_and_changes_of_a_part_counted(call: object, text: str, parts: dict[str, int]):
    blocks = [{"type": "tool_use", "name": "artifacts", "input": call}, text_part("Done.")]
    chat = claude(claude_message("1", CLAUDE_ROOT, "assistant", content=blocks))
    assert (shown(chat), counted(chat)) == ([f"{text}\n\nDone.".lstrip()], parts)


def test_claude_names_the_message_that_is_shown():
    messages = [
        claude_message("1", CLAUDE_ROOT, "human", "one"),
        claude_message("2", "1", "assistant", "two"),
        claude_message("3", "1", "assistant", "another two"),
    ]
    assert shown(claude(*messages, current_leaf_message_uuid="2")) == ["one", "two"]
    assert shown(claude(*messages, current_leaf_message_uuid=[])) == ["one", "another two"]


def test_a_circle_of_messages_is_cut_above_the_first():
    chat = claude(
        claude_message("1", "3", "human", "one"),
        claude_message("2", "1", "assistant", "two"),
        claude_message("3", "2", "human", "three"),
    )
    assert shown(chat) == ["one", "two", "three"]


@pytest.mark.parametrize(("content", "text"), [("", "To Rome."), ("To Paris.", "To Rome.\n\nTo Paris.")])
def test_open_webui_keeps_the_text_of_the_output_and_one_that_was_changed(content: str, text: str):
    output = [{"type": "message", "content": [text_part("To Rome.", "output_text")]}]
    chat = webui(QUESTION, open_webui_message("b", "a", "assistant", content, output=output))
    assert chat.messages[1].text == text


@pytest.mark.parametrize(
    ("folded", "text", "parts"),
    [
        ('<details type="reasoning" done="true">\n<summary>Thought</summary>\n&gt; Sun &amp; sea.\n&gt; &gt; x\n'
         "</details>\nGo.",
         "<think>\nSun & sea.\n> x\n</think>\n\n\nGo.", {}),
        ('<details type="tool_calls" name="f" result="&quot;1&quot;">\n<summary>Done</summary>\n</details>\nGo.',
         "\nGo.", {"tool call": 1, "tool result": 1}),
        ("<details>\n<summary>More</summary>\nwords\n</details>\nGo.",) * 2 + ({},),
        ('<details type="open">words</details> Go.',) * 2 + ({},),
        ('<details type="reasoning">\n&gt; broken off', "<think>\nbroken off\n</think>\n\n", {}),
    ],
)  # fmt: skip
def test_open_webui_unfolds_older_thoughts(folded: str, text: str, parts: dict[str, int]):
    asked = QUESTION | {"content": folded}
    chat = webui(asked, open_webui_message("b", "a", "assistant", folded))
    assert (chat.messages[1].text, counted(chat)) == (text, parts)
    assert chat.messages[0].text == folded, "the person's words are as they were written"


@pytest.mark.parametrize(
    ("error", "words"), [({"content": "No memory"}, "No memory"), (True, "It failed in Open WebUI.")]
)
def test_an_error_of_open_webui_is_that_of_the_reply(error: object, words: str):
    reply = webui(QUESTION, open_webui_message("b", "a", "assistant", "", error=error)).messages[1]
    assert (reply.status, reply.error) == (MessageStatus.FAILED, words)


def test_the_text_of_a_document_of_open_webui_stands_in_its_message():
    document = {"type": "file", "name": "plan.pdf", "file": {"data": {"content": "Two oars."}}}
    asked = QUESTION | {"files": [document, {"type": "file", "name": "scan.pdf", "file": {}}]}
    chat = webui(asked, open_webui_message("b", "a", "assistant", "Rome"))
    assert shown(chat) == ["Where to?\n\n[plan.pdf]\n\nTwo oars.", "Rome"]
    assert +chat.without == {"file": 1}


def test_a_chat_of_open_webui_without_a_tree_is_read_as_its_list():
    said = [QUESTION | {"parentId": None}, open_webui_message("b", None, "assistant", "Rome")]
    assert shown(read("Open WebUI", {"chat": {"messages": said}})) == ["Where to?", "Rome"]


@pytest.mark.parametrize(("url", "text", "images"), [(ADDRESS, "", 1), ("/files/1", "[1 image]", 0)])
def test_a_question_that_is_an_image_alone_stays_above_its_answer(url: str, text: str, images: int):
    asked = open_webui_message("c", "b", "user", "", files=[{"type": "image", "url": url}])
    chat = webui(QUESTION, open_webui_message("b", "a", "assistant", "Rome"), asked,
                 open_webui_message("d", "c", "assistant", "A dog."))  # fmt: skip
    assert shown(chat) == ["Where to?", "Rome", text, "A dog."]
    assert len(chat.messages[2].files) == images
    nodes = [
        deepseek_node("1", None, ("REQUEST", ""), files=[{"id": "f"}]),
        deepseek_node("2", "1", ("RESPONSE", "A dog.")),
    ]
    assert shown(read("DeepSeek", {"mapping": {each["id"]: each for each in nodes}})) == ["[1 file]", "A dog."]


def test_files_of_claude_are_named_in_either_list():
    named = {"file_name": "dog.png", "file_uuid": "f"}
    for lists in ({"files_v2": [named]}, {"files": [named], "files_v2": [named]}):
        chat = claude(claude_message("1", None, "human", **lists), claude_message("2", "1", "assistant", "A dog."))
        assert shown(chat) == ["[dog.png]", "A dog."]
        assert counted(chat) == {"file": 1}


def test_blocks_without_content_are_not_counted_and_unknown_ones_with_words_are():
    blocks = [{"type": "token_budget"}, text_part("Yes."), {"type": "hologram", "caption": "boat"}]
    chat = claude(claude_message("1", None, "human", "A boat?"), claude_message("2", "1", "assistant", content=blocks))
    assert (shown(chat), counted(chat)) == (["A boat?", "Yes."], {"other part": 1})


def test_a_text_in_a_field_that_is_not_known_is_counted_by_its_name():
    chat = claude(claude_message("1", None, "human", "A boat?", mood="quite well", seen="2026"), summary="On boats")
    assert counted(chat) == {"“mood” text": 1, "“summary” text": 1}


def test_images_that_chatgpt_drew_are_in_the_reply_or_counted_as_images():
    def drawn(pointer: str) -> dict[str, Any]:
        image = {"content_type": "image_asset_pointer", "asset_pointer": pointer}
        content = {"content_type": "multimodal_text", "parts": [image]}
        return chatgpt_chat(
            chatgpt_node("q", None, "user", "Draw"), chatgpt_node("t", "q", "tool", content=content),
            chatgpt_node("a", "t", "assistant", "Here."),
        )  # fmt: skip

    chat = read("ChatGPT", drawn("sediment://file_1"))
    assert [(message.text, len(message.files)) for message in chat.messages] == [("Draw", 0), ("Here.", 1)]
    assert counted(chat) == {}
    assert counted(read("ChatGPT", drawn("sediment://file_9"))) == {"image": 1}


def test_a_damaged_thread_of_jan_costs_none_of_its_messages(import_files: ImportFiles, tmp_path: Path):
    (tmp_path / "thread.json").write_text('{"object": "thr')
    (tmp_path / "messages.jsonl").write_text(json.dumps(jan_line("1", "user", jan_text("Hello"))))
    report = import_files(tmp_path / "messages.jsonl")
    assert (report.messages, report.without[0].parts) == (1, "1 damaged part")


LIBRECHAT = [
    librechat_message("1", LIBRECHAT_ROOT, "A story?", user=True),
    librechat_message("2", "1", "Once", user=False, model="gpt-4o", unfinished=True),
    librechat_message("3", "1", "Twice", user=False),
    librechat_message("4", "2", "Go on", user=True),
    librechat_message("5", "4", "No key", user=False, error=True),
]


@pytest.mark.parametrize("field", ["messages", "messagesTree", None])
def test_a_chat_of_librechat_keeps_its_branches_in_either_form(field: str | None):
    options = {"promptPrefix": "Be brief.", "temperature": 0.5, "model": "gpt-4o", "title": "Story"}
    data = librechat_chat(LIBRECHAT, options=options)
    if field is not None:
        del data["messages"]
        data |= {field: librechat_tree(LIBRECHAT), "recursive": True}
    chat = read("LibreChat", data)
    below = {
        message.text: chat.messages[message.parent_id].text
        for message in chat.messages
        if message.parent_id is not None
    }
    assert below == {"Once": "A story?", "Twice": "A story?", "Go on": "Once", "": "Go on"}
    first, failed = (next(each for each in chat.messages if each.text == text) for text in ("Once", ""))
    assert (first.model, first.finish_reason) == ("gpt-4o", FinishReason.CANCELLED)
    assert (failed.status, failed.error, failed.model) == (MessageStatus.FAILED, "No key", "GPT-4")
    assert chat.conversation.system_prompt == "Be brief."
    assert counted(chat) == {}


def test_blocks_of_librechat_are_thoughts_texts_images_and_counted_calls():
    chat = read("LibreChat", FULL["LibreChat"])
    reply = chat.messages[1]
    assert reply.text == "<think>\nThey want a story\n</think>\n\nOnce upon\n\nIt broke off\n\na time."
    assert len(reply.files) == 1
    assert counted(chat)["tool call"] == 2
    assert counted(chat)["image"] == 1


def test_a_file_is_told_by_its_first_whole_chat_and_may_have_a_single_one(
    store: ConversationStore, import_json: ImportJson
):
    good = {"name": "Good", "chat_messages": [claude_message("1", None, "human", "Hello")]}
    report = import_json("conversations.json", [None, {"title": "Odd"}, good])
    assert [each.title for each in store.conversations()] == ["Good"]
    assert [each.title for each in report.not_taken] == ["Chat 1", "Odd"]
    assert import_json("one.json", good | {"name": "Alone"}).messages == 1
    assert import_json("two.json", librechat_chat(LIBRECHAT)).files[0].source == "LibreChat"


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
def test_the_words_in_marks_of_chatgpt_stay(marked: str, text: str):
    chat = chatgpt_chat(chatgpt_node("q", None, "user", "Q"), chatgpt_node("a", "q", "assistant", marked))
    assert shown(read("ChatGPT", chat)) == ["Q", text]


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
def test_a_canvas_of_chatgpt_is_kept_or_counted(function: str, call: dict[str, object], text: str, as_text: bool):
    code = json.dumps(call)
    content = {"content_type": "text", "parts": [code]} if as_text else {"content_type": "code", "text": code}
    nodes = (
        chatgpt_node("q", None, "user", "Q"),
        chatgpt_node("c", "q", "assistant", content=content, recipient=f"canmore.{function}"),
        chatgpt_node("t", "c", "tool", "Successfully created"),
        chatgpt_node("a", "t", "assistant", "Done."),
    )
    chat = read("ChatGPT", chatgpt_chat(*nodes))
    assert shown(chat) == ["Q", text]
    assert ("canvas" in " ".join(counted(chat))) == (text == "Done.")


REPORT = {"status": "completed", "report_message": {"content": {"content_type": "text", "parts": ["# Findings"]}}}
AS_JSON = json.dumps(REPORT)
STATE = f"The latest state of the widget is: {AS_JSON}"
PLAN = json.dumps({"status": "pending", "plan": {"title": "A plan"}})


@pytest.mark.parametrize(
    ("content", "metadata"),
    [
        ("started", {"chatgpt_sdk": {"widget_state": AS_JSON}}),
        ("started", {"chatgpt_sdk": {"widget_state": REPORT}}),
        ({"content_type": "code", "text": "{}"}, {"chatgpt_sdk": {"widget_state": AS_JSON}}),
        ({"content_type": "execution_output", "text": "x"}, {"chatgpt_sdk": {"widget_state": AS_JSON}}),
        ("", {"chatgpt_sdk": {"widget_state": AS_JSON}, "is_visually_hidden_from_conversation": True}),
        ("", {"chatgpt_sdk": {"tool_response_metadata": {"venus_widget_state": REPORT}, "widget_state": PLAN}}),
        ("", {"venus_widget_state": REPORT, "chatgpt_sdk": {"widget_state": AS_JSON}}),
        (STATE, {}),
        (STATE, {"is_visually_hidden_from_conversation": True}),
        ({"content_type": "code", "text": STATE}, {}),
        ("# Findings", {"is_async_task_result_message": True}),
    ],
)
def test_a_research_report_of_chatgpt_is_kept(content: Any, metadata: dict[str, Any]):
    """It is shown once, wherever in a tool's message it stands; the chat goes on below it."""
    content = {"content_type": "text", "parts": [content]} if isinstance(content, str) else content
    chat = chatgpt_chat(
        chatgpt_node("q", None, "user", "Q"),
        chatgpt_node("t", "q", "tool", content=content, metadata=metadata),
        chatgpt_node("q2", "t", "user", "And now?"),
    )
    full = read("ChatGPT", chat)
    assert shown(full) == ["Q", "# Findings", "And now?"]
    assert full.messages[1].created_at == CHATGPT_TIME


@pytest.mark.parametrize("text", ["a report_message", "{report_message", AS_JSON[:-9], "[]"])
def test_a_tools_text_without_a_report_is_counted(text: str):
    nodes = chatgpt_node("q", None, "user", "Q"), chatgpt_node("t", "q", "tool", text)
    chat = read("ChatGPT", chatgpt_chat(*nodes))
    assert (shown(chat), counted(chat)) == (["Q"], {"tool result": 1})


def test_a_person_may_write_of_a_report():
    assert shown(read("ChatGPT", chatgpt_chat(chatgpt_node("q", None, "user", STATE)))) == [STATE]


def test_only_a_system_message_before_the_first_question_is_the_prompt():
    nodes = (
        chatgpt_node("s", None, "system", "Be brief."),
        chatgpt_node("q", "s", "user", "Q"),
        chatgpt_node("s2", "q", "system", "You are in voice mode."),
        chatgpt_node("odd", "s2", "assistant", content={"content_type": "sonic_webpage", "url": "x"}),
        chatgpt_node("a", "odd", "assistant", "A"),
    )
    chat = read("ChatGPT", chatgpt_chat(*nodes))
    assert (shown(chat), chat.conversation.system_prompt) == (["Q", "A"], "Be brief.")
    assert counted(chat) == {"other message": 1, "system message": 1}


def test_the_first_system_message_of_lm_studio_is_the_prompt_and_a_later_one_is_counted():
    prompt, later = (lm_studio_question(text_part(text), role="system") for text in ("Be terse.", "Later"))
    chat = read("LM Studio", lm_studio_file([prompt, lm_studio_question(text_part("Q")), later]))
    assert (shown(chat), chat.conversation.system_prompt) == (["Q"], "Be terse.")
    assert counted(chat) == {"system message": 1}


def test_versions_of_the_rest_of_a_reply_and_an_empty_question_stay_apart():
    rows = [
        ("q", None, "Q"),
        ("a", "q", "One"),
        ("b", "a", "Two"),
        ("c", "a", "Three"),
        ("e", "c", ""),
        ("f", "e", "Four"),
    ]
    nodes = (chatgpt_node(own, above, "user" if own in "qe" else "assistant", text) for own, above, text in rows)
    chat = read("ChatGPT", chatgpt_chat(*nodes))
    assert [message.text for message in chat.messages] == ["Q", "One", "Two", "Three", "", "Four"]
