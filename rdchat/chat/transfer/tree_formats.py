"""Reads chats of Claude, DeepSeek and Open WebUI, whose exports are lists of chats with a tree of messages.

None of the formats is documented; they are those of exports of 2024 to 2026.
- Claude's older exports do not name the message above.
- DeepSeek's chats have a `mapping` of messages, as ChatGPT's. A message has fragments instead of a role.
- Since version 0.10 of Open WebUI, a reply has its thoughts, calls and results in `output`. Before, they were folded
  into its text.
"""

import html

from rdchat.chat.conversation import MessageStatus
from rdchat.chat.storage.whole_chat import FullChat
from rdchat.chat.transfer.foreign_chats import (
    ROLES,
    ChatFormat,
    ForeignChat,
    Json,
    attached_text,
    date,
    joined,
    mapping,
    name,
    role_of,
    string,
    take_sampling,
    thinking,
    with_copy,
)
from rdchat.chat.transfer.message_trees import Content, MessageTree
from rdchat.inference.api.messages import Role

_CLAUDE_ROLES = {"human": Role.USER, "assistant": Role.ASSISTANT}
_LEFT_OUT = {
    "sources": "source",
    "citations": "source",
    "statusHistory": "step",
    "followUps": "suggested question",
    "annotation": "rating",
    "code_executions": "tool call",
    "lastSentence": "",
    "modelName": "",
}
_OF_CHAT = {"files": "file of the chat", "messages": "", "tags": "tag"}
_FOLD = '<details type="'
_FOLD_END = "</details>"
_FOLDED = {"reasoning", "tool_calls", "code_interpreter"}


# Claude


def _claude_chat(chat: ForeignChat, fields: Json) -> FullChat:
    shown = fields.pop("current_leaf_message_uuid", None)
    tree = MessageTree(chat, _claude_message, "parent_message_uuid", own="uuid")
    tree.add(fields.pop("chat_messages", None), shown)
    return chat.finish(fields, ("name", "created_at", "updated_at"), {})


def _claude_message(chat: ForeignChat, message: Json) -> Content:
    """Return a message's content: its blocks with the texts of its attachments and the names of its files."""
    role = role_of(message.pop("sender", None), _CLAUDE_ROLES)
    counted = chat.without.total()
    whole = chat.take_text(message, "text")
    text = chat.take_text(message, "content")
    # Where there are blocks, this is a copy of what can be shown of them.
    texts = [text if text.strip() or chat.without.total() > counted else whole]
    for each in chat.listed(message, "attachments"):
        texts.append(attached_text(each.pop("file_name", None), chat.take_text(each, "extracted_content")))
    files = chat.listed(message, "files") + chat.listed(message, "files_v2")
    # Newer exports name a file in both lists.
    unique = {str(each.pop("file_uuid", number)): each for number, each in enumerate(files)}
    chat.without["file"] += len(unique)
    texts += [f"[{name(each.pop('file_name', None)) or 'file'}]" for each in unique.values()]
    return role, joined(texts), {"created_at": date(message.pop("created_at", None))}


CLAUDE = ChatFormat("Claude", lambda chat: "chat_messages" in chat, _claude_chat)


# DeepSeek


def _is_deepseek(chat: Json) -> bool:
    nodes = chat.get("mapping")
    listed = nodes.values() if isinstance(nodes, dict) else ()
    messages = (each.get("message") for each in listed if isinstance(each, dict))
    return any(isinstance(each, dict) and "fragments" in each for each in messages)


def _deepseek_chat(chat: ForeignChat, fields: Json) -> FullChat:
    MessageTree(chat, _deepseek_message, "parent").add(fields.pop("mapping", None))
    return chat.finish(fields, ("title", "inserted_at", "updated_at"), {})


def _deepseek_message(chat: ForeignChat, node: Json) -> Content:
    message = chat.inner(node, "message")
    # Only the person attaches files.
    role = Role.USER if message.get("files") else None
    chat.leave_out(message, {"files": "file"})
    texts: list[str] = []
    for fragment in chat.listed(message, "fragments"):
        kind = fragment.get("type")
        if kind not in ("REQUEST", "THINK", "RESPONSE"):
            texts.append(chat.text_of([fragment]))
            continue
        role = Role.USER if kind == "REQUEST" else Role.ASSISTANT
        text = chat.take_text(fragment, "content")
        texts.append(thinking(text) if kind == "THINK" else text)
    facts = {"created_at": date(message.pop("inserted_at", None)), "model": name(message.pop("model", None))}
    return role, joined(texts), facts


DEEPSEEK = ChatFormat("DeepSeek", _is_deepseek, _deepseek_chat)


# Open WebUI


def _is_open_webui(chat: Json) -> bool:
    inner = chat.get("chat")
    return isinstance(inner, dict) and ("history" in inner or "messages" in inner)


def _open_webui_chat(chat: ForeignChat, fields: Json) -> FullChat:
    inner = mapping(fields.get("chat"), "The chat")
    history = chat.inner(inner, "history")
    # Older versions have the path that is shown only, and newer ones a copy of it.
    entries = history.pop("messages", None) or inner.get("messages")
    params = chat.inner(inner, "params")
    chat.system_prompt = chat.take_text(params, "system") or chat.take_text(inner, "system")
    tree = MessageTree(chat, _open_webui_message, "parentId", own="id")
    tree.add(entries, history.pop("currentId", None))
    sampling = take_sampling(params)
    chat.leave_out(inner, _OF_CHAT)
    fields["title"] = inner.pop("title", None) or fields.get("title")
    return chat.finish(fields, ("title", "created_at", "updated_at"), sampling)


def _open_webui_message(chat: ForeignChat, message: Json) -> Content:
    role = role_of(message.pop("role", None), ROLES)
    facts: Json = {"created_at": date(message.pop("timestamp", None)), "model": name(message.pop("model", None))}
    error = message.pop("error", None)
    content = message.pop("content", None)
    output = chat.listed(message, "output")
    is_folded = isinstance(content, str) and role is Role.ASSISTANT
    text = _unfolded(chat, content, is_copy=bool(output)) if is_folded else chat.text_of(content)
    texts = [with_copy(_output(chat, output), text)]
    texts.append(chat.take_text(message, "files"))
    if role is Role.ASSISTANT and error:
        words = error.get("content") if isinstance(error, dict) else error
        facts["status"] = MessageStatus.FAILED
        facts["error"] = words if isinstance(words, str) else "It failed in Open WebUI."
    chat.leave_out(message, _LEFT_OUT)
    return role, joined(texts), facts


def _output(chat: ForeignChat, output: list[Json]) -> str:
    """Return the thoughts and the text of a reply; calls and their results are counted."""
    texts = []
    for each in output:
        kind = each.get("type")
        if kind == "message":
            texts.append(chat.take_text(each, "content"))
        elif kind == "reasoning":
            parts = [chat.take_text(each, field) for field in ("summary", "content")]
            texts.append(thinking(joined(parts)))
        else:
            texts.append(chat.text_of([each]))
    return joined(texts)


def _unfolded(chat: ForeignChat, content: str, *, is_copy: bool) -> str:
    """Return a text with the thoughts that are folded in it as HTML; calls and their results are counted.

    Args:
        chat: Counts them.
        content: The text.
        is_copy: Whether what is folded is in `output` as well, so that it is neither taken nor counted here.
    """
    texts = []
    at = 0
    while (start := content.find(_FOLD, at)) >= 0:
        end = content.find(_FOLD_END, start)
        # A reply that broke off has no end of it.
        end = len(content) if end < 0 else end
        kind, _, folded = content[start + len(_FOLD) : end].partition('"')
        after = end + len(_FOLD_END)
        texts.append(content[at : start if kind in _FOLDED else after])
        at = after
        if is_copy:
            continue
        if kind == "reasoning":
            body = folded.partition(">")[2]
            lines = html.unescape(body.partition("</summary>")[2] or body).splitlines()
            thought = thinking("\n".join(line.removeprefix(">").removeprefix(" ") for line in lines))
            texts.append(f"{thought}\n\n")
        elif kind in _FOLDED:
            chat.without["tool call"] += 1
            chat.without["tool result"] += ' result="' in folded or ' output="' in folded
    texts.append(content[at:])
    return string("".join(texts), "A message")


OPEN_WEBUI = ChatFormat("Open WebUI", _is_open_webui, _open_webui_chat)
