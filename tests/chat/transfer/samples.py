"""Files of chats in the formats that each app publishes or is known to write."""

import json
from pathlib import Path
from typing import Any

CHATGPT_TIME = 1_700_000_000.5
DATE = "2026-05-01T10:00:00Z"


def text_part(value: str, kind: str = "text") -> dict[str, Any]:
    return {"type": kind, "text": value}


def ours(*chats: dict[str, Any]) -> dict[str, Any]:
    """Return a file of rdchat's own format."""
    return {"format": "rdchat chats", "version": 1, "chats": chats}


def chatgpt_node(
    name: str,
    parent: str | None,
    role: str | None,
    text: str = "",
    *,
    content: dict[str, Any] | None = None,
    metadata: dict[str, Any] | None = None,
    recipient: str = "all",
) -> dict[str, Any]:
    """Return a node of a mapping; without a role, one that has no message."""
    node: dict[str, Any] = {"id": name, "parent": parent, "children": [], "message": None}
    if role is not None:
        node["message"] = {
            "id": name,
            "author": {"role": role, "name": None, "metadata": {}},
            "create_time": CHATGPT_TIME,
            "update_time": None,
            "content": content or {"content_type": "text", "parts": [text]},
            "status": "finished_successfully",
            "end_turn": True,
            "weight": 1.0,
            "metadata": metadata or {},
            "recipient": recipient,
        }
    return node


def chatgpt_chat(*nodes: dict[str, Any], title: str = "Rivers", current: str | None = None) -> dict[str, Any]:
    return {
        "title": title,
        "create_time": CHATGPT_TIME,
        "update_time": CHATGPT_TIME + 60,
        "mapping": {node["id"]: node for node in nodes},
        "moderation_results": [],
        "current_node": current or nodes[-1]["id"],
        "conversation_id": "6f1c",
        "id": "6f1c",
    }


def chatgpt_with_everything() -> dict[str, Any]:
    """Return a chat with hidden nodes, thoughts, a tool, an image, and a question that was edited."""
    model = {"model_slug": "gpt-5-thinking"}
    thoughts = {"content_type": "thoughts", "thoughts": [{"summary": "Length", "content": "The Nile is long."}]}
    instructions = {"content_type": "user_editable_context", "user_profile": "I swim", "user_instructions": "Be brief"}
    image = {"content_type": "image_asset_pointer", "asset_pointer": "file-service://file-1", "width": 2, "height": 2}
    code = {"content_type": "code", "language": "python", "text": "print(6650)"}
    return chatgpt_chat(
        chatgpt_node("root", None, None),
        chatgpt_node("system", "root", "system", "", metadata={"is_visually_hidden_from_conversation": True}),
        chatgpt_node("about", "system", "user", content=instructions),
        chatgpt_node("q1", "about", "user", "Which river is longest?"),
        chatgpt_node("old", "q1", "assistant", "The Amazon.", metadata=model),
        chatgpt_node(
            "q2",
            "about",
            "user",
            content={"content_type": "multimodal_text", "parts": [image, "Which river is the longest one?"]},
        ),
        chatgpt_node("t", "q2", "assistant", content=thoughts, metadata=model),
        chatgpt_node("recap", "t", "assistant", content={"content_type": "reasoning_recap", "content": "8s"}),
        chatgpt_node("call", "recap", "assistant", content=code, recipient="python"),
        chatgpt_node("out", "call", "tool", content={"content_type": "execution_output", "text": "6650"}),
        chatgpt_node("a", "out", "assistant", "The **Nile**, at 6,650 km.", metadata=model),
    )


def lm_studio_question(*parts: dict[str, Any], role: str = "user") -> dict[str, Any]:
    return {"versions": [{"type": "singleStep", "role": role, "content": list(parts)}], "currentlySelected": 0}


def lm_studio_reply(*steps: dict[str, Any]) -> dict[str, Any]:
    return {"type": "multiStep", "role": "assistant", "steps": list(steps), "senderInfo": {"senderName": "Qwen 3"}}


def lm_studio_step(*parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    settings = {"fields": [{"key": "llm.prediction.systemPrompt", "value": "Look closely."}]}
    made = {"identifier": "a model", "stats": {"stopReason": "eosFound"}, "predictionConfig": settings}
    return {"type": "contentBlock", "stepIdentifier": "1", "content": list(parts), "genInfo": made} | more


def lm_studio_file(messages: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {"name": "Numbers", "createdAt": 1_760_000_000_000, "messages": messages, "notes": []} | more


def lm_studio_chat() -> dict[str, Any]:
    """Return a `.conversation.json` of 0.3 or 0.4: a reply with thinking, another version of it, an image."""
    made = {"stats": {"stopReason": "maxPredictedTokensReached"}}
    thought = lm_studio_step(text_part("Whiskers."), style={"type": "thinking", "title": "Thought for 1.2 seconds"})
    answers = (
        lm_studio_reply(thought, lm_studio_step(text_part("A cat."), genInfo=made)),
        lm_studio_reply(lm_studio_step(text_part("A dog."))),
    )
    image = {"type": "file", "fileIdentifier": "1 - 2.png", "fileType": "image", "sizeBytes": 12}
    messages = [
        lm_studio_question(text_part("What is this?"), image),
        {"versions": list(answers), "currentlySelected": 0},
        lm_studio_question(text_part("Sure?")),
    ]
    fields = [
        {"key": "llm.prediction.systemPrompt", "value": "Look closely."},
        {"key": "llm.prediction.temperature", "value": 0.2},
        {"key": "llm.prediction.topPSampling", "value": {"checked": True, "value": 0.9}},
        {"key": "llm.prediction.maxPredictedTokens", "value": {"checked": False, "value": 5}},
    ]
    dates = {"createdAt": 1_711_800_000_000, "userLastMessagedAt": 1_711_800_001_000,
             "assistantLastMessagedAt": 1_711_800_002_000}  # fmt: skip
    return lm_studio_file(messages, name="A picture", perChatPredictionConfig={"fields": fields}, **dates)


def jan_line(own: str, role: str, *content: dict[str, Any], **more: Any) -> dict[str, Any]:
    line = {"id": own, "object": "thread.message", "role": role, "content": list(content), "status": "ready"}
    return line | {"created_at": 1_760_000_000, "metadata": {}} | more


def jan_text(value: str, kind: str = "text") -> dict[str, Any]:
    return {"type": kind, "text": {"value": value, "annotations": []}}


def write_jan(folder: Path) -> Path:
    """Write a thread's folder and return it."""
    folder.mkdir(parents=True)
    thread = {
        "id": "t1",
        "object": "thread",
        "title": "Soup",
        "assistants": [
            {
                "assistant_id": "jan",
                "assistant_name": "Jan",
                "instructions": "You cook.",
                "model": {
                    "id": "gemma-3-4b",
                    "parameters": {"temperature": 1, "presence_penalty": 0.5, "max_tokens": 50},
                },
            }
        ],
        "created": 1_750_000_000_000,
        "updated": 1_750_000_009_000,
        "metadata": {},
    }
    lines = [
        jan_line(
            "m0",
            "user",
            jan_text("How?"),
            {"type": "image_url", "image_url": {"url": "data:,"}},
            created_at=1_750_000_000,
        ),
        jan_line("m1", "assistant", jan_text("Boil it?", "reasoning"), jan_text("Boil it."), status="stopped"),
    ]
    (folder / "thread.json").write_text(json.dumps(thread))
    (folder / "messages.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def claude_message(own: str, parent: str | None, sender: str, text: str = "", **more: Any) -> dict[str, Any]:
    content = [text_part(text)] if text else []
    message = {"uuid": own, "sender": sender, "text": text, "content": content, "created_at": DATE, "updated_at": DATE}
    return message | {"parent_message_uuid": parent, "attachments": [], "files": []} | more


def claude_chat() -> dict[str, Any]:
    """Return a chat of Claude's `conversations.json`: a thought, a call, an attachment, a file, two versions."""
    attached = [{"file_name": "notes.txt", "file_type": "txt", "extracted_content": "The Elbe is long."}]
    blocks = [
        {"type": "thinking", "thinking": "Which?"},
        {"type": "tool_use", "name": "look", "input": {"q": "Elbe"}},
        {"type": "tool_result", "content": [text_part("found")]},
        text_part("The Elbe."),
    ]
    return {
        "uuid": "c1",
        "name": "Rivers",
        "created_at": DATE,
        "updated_at": "2026-05-01T10:02:00Z",
        "account": {"uuid": "a"},
        "chat_messages": [
            claude_message("m1", "00000000", "human", "A river?", attachments=attached),
            claude_message("m2", "m1", "assistant", "ALSO", content=blocks),
            claude_message("m3", "m1", "assistant", "The Rhine."),
            claude_message("m4", "m2", "human", "And this?", files=[{"file_name": "map.png"}]),
        ],
    }
