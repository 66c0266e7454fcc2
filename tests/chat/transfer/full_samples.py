"""One chat of each program with every field of words that its format is known to have, and one of six plain messages.

Chats are as a reader gets them: parsed JSON, one chat. `READERS` has the function that reads each.
"""

import base64
import json
from collections.abc import Callable, Iterator
from typing import Any

from rdchat.chat.storage import FullChat
from rdchat.chat.transfer import rdchat_json, transfer_process
from rdchat.chat.transfer.chat_apps import jan_chat
from rdchat.chat.transfer.foreign_chats import items
from tests.chat.transfer.samples import (
    DATE,
    chatgpt_chat,
    chatgpt_node,
    chatgpt_with_everything,
    claude_chat,
    claude_message,
    jan_line,
    jan_text,
    lm_studio_file,
    lm_studio_question,
    lm_studio_reply,
    lm_studio_step,
    text_part,
)

IMAGE = b"\x89PNG\r\n\x1a\n" + bytes(40)
ADDRESS = f"data:image/png;base64,{base64.b64encode(IMAGE).decode()}"
NUMBERS = ("one", "two", "three", "four", "five", "six")
ROW = tuple(zip((None, *NUMBERS[:-1]), NUMBERS, ("user", "assistant") * 3, strict=True))
CLAUDE_ROOT = "00000000-0000-4000-8000-000000000000"
LIBRECHAT_ROOT = "00000000-0000-0000-0000-000000000000"


type Path = tuple[Any, ...]


def places(value: Any, path: Path = ()) -> Iterator[Path]:
    """Yield the paths of all values below a value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        yield (*path, key)
        yield from places(each, (*path, key))


# ChatGPT


def _chatgpt() -> dict[str, Any]:
    def image(number: int) -> dict[str, Any]:
        return {"content_type": "image_asset_pointer", "asset_pointer": f"sediment://file_{number}"}

    def parts(*values: Any) -> dict[str, Any]:
        return {"content_type": "multimodal_text", "parts": list(values)}

    chat = chatgpt_with_everything()
    chat["mapping"]["t"]["message"]["content"]["thoughts"][0]["chunks"] = ["The Nile ", "is long."]
    canvas = '{"name": "ode", "type": "document", "content": "Dear Sam"}'
    spoken = {"content_type": "audio_transcription", "text": "Spoken words", "direction": "in"}
    sources = {
        "content_references": [{"type": "webpage", "title": "A title", "snippet": "A snippet"}],
        "citations": [
            {"start_ix": 1, "end_ix": 2, "metadata": {"type": "webpage", "title": "Cited", "text": "A line"}}
        ],
        "search_result_groups": [{"domain": "a.org", "entries": [{"title": "Found", "snippet": "A snippet"}]}],
        "model_slug": "gpt-5",
        "image_gen_title": "A title of a picture",
    }
    attached = {"attachments": [{"id": "file_9", "name": "a report.pdf", "mimeType": "application/pdf"}]}
    page = {"content_type": "tether_browsing_display", "result": "A page", "summary": "Its summary"}
    quote = {
        "content_type": "tether_quote",
        "url": "https://a.org",
        "domain": "a.org",
        "text": "Quoted",
        "title": "T t",
    }
    memory = {"content_type": "model_editable_context", "model_set_context": "They like boats"}
    report = {
        "status": "completed",
        "report_message": {"content": {"parts": ["Dear Sam"]}},
        "plan": {"title": "A plan"},
    }
    research = {"chatgpt_sdk": {"resource_name": "Research App", "widget_state": json.dumps(report)}}
    unknown = {"content_type": "sonic_webpage", "title": "A web page", "snippet": "Its words"}
    further = [
        chatgpt_node("s", "a", "system", "Speak softly."),
        chatgpt_node("q3", "s", "user", content=parts(spoken, image(2), "And this?"), metadata=attached),
        chatgpt_node("memory", "q3", "assistant", content=memory),
        chatgpt_node("page", "memory", "tool", content=page),
        chatgpt_node("quote", "page", "tool", content=quote),
        chatgpt_node(
            "e", "quote", "tool", content={"content_type": "system_error", "name": "E e", "text": "It failed"}
        ),
        chatgpt_node("drawn", "e", "tool", content=parts(image(1) | {"metadata": {"dalle": {"prompt": "A red boat"}}})),
        chatgpt_node("c", "drawn", "assistant", canvas, recipient="canmore.create_textdoc"),
        chatgpt_node("research", "c", "tool", content={"content_type": "code", "text": "A state"}, metadata=research),
        chatgpt_node("odd", "research", "assistant", content=unknown),
        chatgpt_node("b", "odd", "assistant", "A boat \ue200cite\ue202turn0search0\ue201.", metadata=sources),
    ]
    chat["mapping"] |= {each["id"]: each for each in further}
    return chat | {"current_node": "b"}


def _chatgpt_numbers() -> dict[str, Any]:
    nodes = [chatgpt_node("root", None, None)]
    nodes += [chatgpt_node(word, above or "root", role, word) for above, word, role in ROW]
    return chatgpt_chat(*nodes)


def _find(name: str) -> bytes | None:
    return IMAGE if name.endswith(("file_1", "file_2", "dog.png")) else None


# Claude


def _claude() -> dict[str, Any]:
    chat = claude_chat()
    citations = [{"uuid": "u", "title": "A cited page", "url": "https://a.org"}]
    blocks = [
        {"type": "thinking", "thinking": "They ask again", "summaries": [{"summary": "About the question"}]},
        {"type": "tool_use", "name": "artifacts", "input": {"title": "A draft", "content": "Once upon a time"}},
        {"type": "tool_result", "name": "artifacts", "content": [text_part("It is made")], "message": "Well made"},
        text_part("The map shows it.") | {"citations": citations},
        {"type": "token_budget"},
        {"type": "voice_note", "title": "A note", "text": "Spoken words"},
        {"type": "flag", "flag": "harm", "helpline": {"name": "Help line", "number": "1"}},
        {"type": "hologram", "caption": "A caption"},
    ]
    chat["summary"] = "A talk about rivers"
    chat["chat_messages"] += [
        claude_message("m5", "m4", "assistant", content=blocks),
        claude_message(
            "m6", "m5", "human", files_v2=[{"file_name": "a dog.png", "file_uuid": "f", "file_kind": "image"}]
        ),
        claude_message("m7", "m6", "assistant", content=[], text="A dog of 2024."),
    ]
    return chat | {"current_leaf_message_uuid": "m7"}


def _claude_numbers() -> dict[str, Any]:
    senders = {"user": "human", "assistant": "assistant"}
    messages = [claude_message(word, above or CLAUDE_ROOT, senders[role], word) for above, word, role in ROW]
    return {"uuid": "c", "name": "Numbers", "chat_messages": messages}


# DeepSeek


def deepseek_node(own: str, parent: str | None, *fragments: tuple[str, str], **more: Any) -> dict[str, Any]:
    listed = [{"type": kind, "content": text} for kind, text in fragments]
    message = {"files": [], "model": "deepseek-chat", "inserted_at": DATE, "fragments": listed} | more
    return {"id": own, "parent": parent, "children": [], "message": message}


def _deepseek() -> dict[str, Any]:
    found = ("SEARCH", "A page"), ("READ_LINK", "Another page"), ("TOOL_CALL", "A call"), ("TEMPLATE", "A template")
    shot = {"file_name": "a dog.png", "content": "Words on it"}
    nodes = [
        deepseek_node("1", "root", ("REQUEST", "A river?")),
        deepseek_node("2", "1", ("THINK", "Which one"), *found, ("RESPONSE", "The Elbe.")),
        deepseek_node("3", "1", ("RESPONSE", "The Rhine.")),
        deepseek_node("4", "2", files=[shot]),
        deepseek_node("5", "4", ("RESPONSE", "A dog."), tip="AI can err"),
    ]
    nodes[1]["message"]["fragments"].append(text_part("Words of a tip", "TIP"))
    nodes[1]["message"]["fragments"][1]["results"] = [{"title": "A title", "snippet": "A snippet"}]
    top = {"root": {"id": "root", "parent": None, "children": ["1"], "message": None}}
    return {"id": "c", "title": "Rivers", "inserted_at": DATE, "mapping": top | {each["id"]: each for each in nodes}}


def _deepseek_numbers() -> dict[str, Any]:
    nodes: dict[str, Any] = {"root": {"id": "root", "parent": None, "children": ["one"], "message": None}}
    for above, word, role in ROW:
        nodes[word] = deepseek_node(word, above or "root", ("REQUEST" if role == "user" else "RESPONSE", word))
    return {"id": "c", "title": "Numbers", "mapping": nodes}


# Open WebUI


def open_webui_message(own: str, parent: str | None, role: str, content: Any, **more: Any) -> dict[str, Any]:
    message = {"id": own, "parentId": parent, "childrenIds": [], "role": role, "content": content, "models": ["m"]}
    return message | {"timestamp": 1_760_000_000} | more


def open_webui_chat(messages: list[dict[str, Any]], current: str, **more: Any) -> dict[str, Any]:
    history = {"messages": {each["id"]: each for each in messages}, "currentId": current}
    chat = {"title": "Trip", "models": ["m"], "history": history, "messages": [], "params": {}, "tags": []} | more
    return {"id": "x", "user_id": "u", "title": "Trip", "created_at": 1_760_000_000, "chat": chat}


def _open_webui() -> dict[str, Any]:
    call = {"type": "function_call", "name": "weather", "arguments": '{"city": "New York"}', "call_id": "c1"}
    result = {"type": "function_call_output", "call_id": "c1", "output": [text_part("28 degrees", "input_text")]}
    thought = {"type": "reasoning", "summary": [text_part("In short", "summary_text")],
               "content": [text_part("They want sun", "output_text")]}  # fmt: skip
    output = [thought, call, result, {"type": "message", "content": [text_part("To Rome.", "output_text")]}]
    odd = [{"type": "open_webui:code_interpreter", "code": "print(1 + 1)", "output": {"stdout": "2 lines"}}]
    folded = (
        '<details type="reasoning" done="true">\n<summary>Thought for 3 seconds</summary>\n&gt; Sea &amp; sun\n'
        '</details>\n<details type="tool_calls" name="f x" arguments="&quot;a b&quot;" result="&quot;r s&quot;">\n'
        "<summary>Tool Executed</summary>\n</details>\nGo there."
    )
    sources = [{"source": {"name": "A file name"}, "document": ["A passage"], "metadata": [{"name": "Its name"}]}]
    document = {"type": "file", "file": {"filename": "my plan.txt", "data": {"content": "Words of a file"}}}
    of_chat = {"type": "file", "file": {"filename": "c d.txt", "data": {"content": "Words of another file"}}}
    status = [{"action": "web_search", "description": "Searching the web", "done": True}]
    messages = [
        open_webui_message("a", None, "user", "Where to?", files=[document, {"type": "image", "url": ADDRESS}]),
        open_webui_message("b", "a", "assistant", "To Rome.", output=output, model="m", modelName="M m",
                           sources=sources, statusHistory=status, followUps=["What then?"], lastSentence="To Rome."),
        open_webui_message("c", "a", "assistant", folded, model="n", annotation={"comment": "Very good", "rating": 1}),
        open_webui_message("d", "b", "user", "", files=[{"type": "image", "url": ADDRESS}]),
        open_webui_message("e", "d", "assistant", "", error={"content": "The model broke down"}),
        open_webui_message("f", "d", "assistant", "", output=odd, code_executions=[{"name": "A run", "code": "a b"}]),
        open_webui_message("g", "b", "system", "Be kind."),
        open_webui_message("h", "g", "user", [text_part("Listed words"),
                                              {"type": "image_url", "image_url": {"url": "x"}}]),
    ]  # fmt: skip
    params = {"system": "You are a guide.", "temperature": 0.2, "stop": ["The end"], "seed": 3, "num_predict": 7}
    more = {"params": params, "files": [of_chat], "tags": ["a tag"]}
    return open_webui_chat(messages, "e", **more) | {"meta": {"tags": ["another tag"]}}


def _open_webui_numbers() -> dict[str, Any]:
    return open_webui_chat([open_webui_message(word, above, role, word) for above, word, role in ROW], "six")


# LibreChat


def librechat_message(own: str, parent: str | None, text: str, *, user: bool, **more: Any) -> dict[str, Any]:
    sender = "User" if user else "GPT-4"
    message = {"messageId": own, "parentMessageId": parent, "conversationId": "c", "text": text, "sender": sender}
    return message | {"isCreatedByUser": user, "error": False, "unfinished": False, "createdAt": DATE} | more


def librechat_chat(messages: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    head = {"conversationId": "c", "endpoint": "openAI", "title": "Story", "branches": True, "recursive": False}
    return head | {"exportAt": "08:12:16 GMT-0400 (Eastern Daylight Time)", "messages": messages} | more


def _librechat() -> dict[str, Any]:
    call = {"id": "c1", "name": "search", "args": '{"query": "old boats"}', "output": "Three boats"}
    code = {"type": "code_interpreter", "code_interpreter": {"input": "print(a, b)", "outputs": [{"logs": "a b"}]}}
    content = [
        {"type": "think", "think": "They want a story"},
        {"type": "text", "text": {"value": "Once upon", "annotations": []}},
        {"type": "tool_call", "tool_call": call},
        {"type": "tool_call", "tool_call": code},
        {"type": "image_file", "image_file": {"filename": "a boat.png", "filepath": "/images/a boat.png"}},
        {"type": "image_url", "image_url": {"url": ADDRESS}},
        {"type": "agent_update", "agent_update": {"agentId": "the second agent"}},
        {"type": "error", "error": "It broke off"},
        text_part("a time."),
    ]
    files = [{"filename": "a b.txt", "filepath": "/uploads/a b.txt", "type": "text/plain", "text": "Words of a file"}]
    found = [
        {"type": "web_search", "toolCallId": "c1", "web_search": {"organic": [{"title": "A page", "snippet": "S s"}]}}
    ]
    messages = [
        librechat_message("a", LIBRECHAT_ROOT, "A story?", user=True, files=files, quotes=["Quoted words"]),
        librechat_message("b", "a", "", user=False, model="gpt-4o", content=content, attachments=found),
        librechat_message("c", "a", "Another one.", user=False, feedback={"rating": "up", "text": "Very good"}),
        librechat_message("d", LIBRECHAT_ROOT, "A long story?", user=True),
        librechat_message("e", "d", "No key was found", user=False, error=True),
        librechat_message("f", "e", "", user=True, files=files),
        librechat_message("g", "f", "Fine.", user=False, plugin={"latest": "A plugin", "outputs": "Its outputs"}),
    ]
    options = {"model": "gpt-4o", "promptPrefix": "Be brief.", "chatGptLabel": "An engineer", "temperature": 0.5,
               "stop": ["The end"], "greeting": "Hello there", "tags": ["a tag"]}  # fmt: skip
    return librechat_chat(messages, options=options)


def librechat_tree(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return messages as the recursive form nests them, below each other."""
    by_id = {each["messageId"]: each | {"children": []} for each in messages}
    top = []
    for each in by_id.values():
        above = by_id.get(each["parentMessageId"])
        (top if above is None else above["children"]).append(each)
    return top


def _librechat_list() -> list[dict[str, Any]]:
    return [librechat_message(word, above or LIBRECHAT_ROOT, word, user=role == "user") for above, word, role in ROW]


# LM Studio


def _lm_studio() -> dict[str, Any]:
    file = {"type": "file", "fileIdentifier": "a report.pdf", "fileType": "document", "name": "The report"}
    image = {"type": "file", "fileIdentifier": "a dog.png", "fileType": "image"}
    calls = [
        {"type": "toolCallRequest", "name": "search", "parameters": {"query": "old boats"}},
        {"type": "toolCallResult", "content": "Three boats"},
    ]
    steps = [
        {"type": "debugInfoBlock", "debugInfo": "Conversation naming technique: 'none'"},
        {"type": "status", "statusState": {"status": "done", "text": "Loading it"}},
        {"type": "toolStatus", "callId": 1, "statusState": {"type": "toolCallSucceeded"}, "report": "All went well"},
        {"type": "citationBlock", "citedText": "A cited line", "fileName": "a b.txt"},
        lm_studio_step(text_part("Three whiskers"), style={"type": "thinking", "title": "Thought for 2 seconds"}),
        lm_studio_step(*calls, style={"type": "default"}),
        lm_studio_step(text_part("A cat."), prefix="A prefix", suffix="A suffix"),
        text_part("Words of a tip", "tip"),
    ]
    fields = [
        {"key": "llm.prediction.systemPrompt", "value": "Look closely."},
        {"key": "llm.prediction.stopStrings", "value": ["The end"]},
        {"key": "llm.prediction.contextPrefill", "value": "Well then"},
    ]
    messages = [
        lm_studio_question(text_part("What is this?"), image, file),
        {
            "versions": [lm_studio_reply(*steps), lm_studio_reply(lm_studio_step(text_part("A dog.")))],
            "currentlySelected": 0,
        },
        lm_studio_question(text_part("Speak softly."), role="system"),
        lm_studio_question(text_part("Sure?")),
    ]
    return lm_studio_file(
        messages, notes=["My own note"], clientInput="Half a question", systemPrompt="Be kind.",
        clientInputFiles=[file], perChatPredictionConfig={"fields": fields}, pluginConfigs={"a": "some words"},
    )  # fmt: skip


def _lm_studio_numbers() -> dict[str, Any]:
    messages = []
    for _, word, role in ROW:
        reply = {"versions": [lm_studio_reply(lm_studio_step(text_part(word)))], "currentlySelected": 0}
        messages.append(lm_studio_question(text_part(word)) if role == "user" else reply)
    return lm_studio_file(messages)


# Jan


def _jan() -> dict[str, Any]:
    model = {"id": "gemma 3", "parameters": {"temperature": 1, "stop": ["The end"]}}
    assistant = {"id": "jan", "name": "Jan the cook", "instructions": "You cook.", "model": model}
    assistant["description"] = "Jan can cook."
    inline = {"inline_file_contents": [{"name": "a note.txt", "content": "The code is 4711."}]}
    calls = {"tool_calls": [{"tool": {"id": "1", "function": {"name": "f", "arguments": '{"a": "b c"}'}},
                             "response": {"content": [text_part("Three boats")]}}]}  # fmt: skip
    lines = [
        jan_line("1", "user", jan_text("How?"), {"type": "image_url", "image_url": {"url": ADDRESS}}, metadata=inline),
        jan_line("2", "assistant", jan_text("Boil it", "reasoning"), jan_text("Boil it."), metadata=calls),
        jan_line("3", "tool", jan_text("Found it")),
        jan_line("4", "system", jan_text("Speak softly.")),
        jan_line("5", "assistant", jan_text("Half"), status="error", error_code="E e", metadata={"error": "No memory"}),
        jan_line("6", "assistant", {"type": "tool_call", "tool_name": "f", "input": {"a": "b c"}, "output": "Three"}),
    ]
    return {"thread": {"title": "Soup", "created": 1, "assistants": [assistant], "metadata": {}}, "lines": lines}


def _jan_numbers() -> dict[str, Any]:
    lines = [jan_line(word, role, jan_text(word)) for _, word, role in ROW]
    return {"thread": {"title": "Numbers"}, "lines": lines}


def _read_jan(chat: dict[str, Any]) -> FullChat:
    return jan_chat(chat.get("thread"), items(chat.get("lines"), "Its lines"))


# rdchat


def _rdchat() -> dict[str, Any]:
    call = {"name": "search", "arguments": '{"query": "old boats"}', "call_id": "c1", "refusal": "It is off"}
    cut = {"summary": "What was said", "model": "a model"}
    messages = [
        {"parent": None, "role": "user", "text": "Boats?", "activated": 0, "context_cut": cut,
         "files": [{"name": "a b.txt", "kind": "text", "text": "Words of a file", "taken": "1 page", "note": "N n"}]},
        {"parent": 0, "role": "assistant", "text": "Yes.", "model": "a model", "tool_calls": [call], "activated": 1,
         "made_with": {"system_prompt": "Be terse."}, "drafting": {"reason": "Too short", "drafter": "a head"}},
        {"parent": 1, "role": "tool", "text": "Three boats", "tool_call_id": "c1", "tool_name": "a tool",
         "activated": 2, "status": "failed", "error": "It broke off"},
    ]  # fmt: skip
    sampling = {"temperature": 0.5, "stop": ["The end"]}
    return {"title": "Boats", "system_prompt": "Be brief.", "sampling": sampling, "folder": ["My folder"],
            "messages": messages}  # fmt: skip


def _rdchat_numbers() -> dict[str, Any]:
    messages = [
        {"parent": number - 1 if above else None, "role": role, "text": word, "activated": number}
        for number, (above, word, role) in enumerate(ROW)
    ]
    return {"title": "Numbers", "messages": messages}


READERS: dict[str, Callable[[Any], FullChat]] = {
    **{each.name: lambda chat, kind=each: kind.read(chat, _find) for each in transfer_process.FORMATS},
    "Jan": _read_jan,
    "rdchat": rdchat_json.read,
}
FULL: dict[str, dict[str, Any]] = {
    "ChatGPT": _chatgpt(),
    "Claude": _claude(),
    "DeepSeek": _deepseek(),
    "Open WebUI": _open_webui(),
    "LibreChat": _librechat(),
    "LM Studio": _lm_studio(),
    "Jan": _jan(),
    "rdchat": _rdchat(),
}
NUMBERED: dict[str, tuple[str, dict[str, Any]]] = {
    "ChatGPT": ("ChatGPT", _chatgpt_numbers()),
    "Claude": ("Claude", _claude_numbers()),
    "DeepSeek": ("DeepSeek", _deepseek_numbers()),
    "Open WebUI": ("Open WebUI", _open_webui_numbers()),
    "LibreChat": ("LibreChat", librechat_chat(_librechat_list())),
    "LibreChat, nested": ("LibreChat", librechat_chat(librechat_tree(_librechat_list()), recursive=True)),
    "LM Studio": ("LM Studio", _lm_studio_numbers()),
    "Jan": ("Jan", _jan_numbers()),
    "rdchat": ("rdchat", _rdchat_numbers()),
}
"""By the form: the program, and a chat of six messages, each a number's name, in a row."""
