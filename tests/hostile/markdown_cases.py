"""Cases of what a reply says: markdown that is deep, wide, long or odd. They are shown in the window's transcript."""

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from tests.hostile.case import Call, Case, Kind

TEXTS: Mapping[str, str] = {
    "5,000 quotes in one another": ">" * 5000 + " a",
    "lists in one another": "\n".join("  " * depth + "- a" for depth in range(1000)),
    "numbered lists in one another": "\n".join("   " * depth + "1. a" for depth in range(500)),
    "emphasis without end": "*a **b " * 20_000,
    "stars only": "*" * 200_000,
    "underscores only": "_" * 200_000,
    "brackets only": "[" * 100_000,
    "brackets and parentheses": "[a](" * 50_000,
    "images in one another": "![" * 50_000,
    "backticks of all lengths": " ".join("`" * length for length in range(1000)),
    "a line of 1,000,000 characters": "a" * 1_000_000,
    "a line of 1,000,000 words": "a " * 500_000,
    "100,000 lines": "a\n" * 100_000,
    "50,000 paragraphs": "a\n\n" * 50_000,
    "20,000 headings": "# a\n" * 20_000,
    "20,000 rules": "---\n\n" * 20_000,
    "a table of 500 columns": "|" + "a|" * 500 + "\n|" + "-|" * 500 + "\n" + ("|" + "b|" * 500 + "\n") * 50,
    "a table of 20,000 rows": "|a|b|\n|-|-|\n" + "|c|d|\n" * 20_000,
    "a thousand tables": "|a|b|\n|-|-|\n|c|d|\n\n" * 1000,
    "a code block of 50,000 lines": "```python\n" + "def f(x): return x\n" * 50_000 + "```",
    "a code block of one line of 500,000": "```python\n" + "x = (" * 100_000 + "\n```",
    "a code block of a language nobody knows": "```evil " + "x" * 10_000 + "\na\n```",
    "10,000 code blocks": "```\na\n```\n\n" * 10_000,
    "a code block that is never closed": "```\n" + "a\n" * 20_000,
    "a code block that a highlighter dislikes": "```c\n" + '"' + "\\" * 100_001 + "\n```",
    "strings that never end": "```perl\n" + "q{" * 20_000 + "\n```",
    "HTML": "<script>alert(1)</script><img src=x onerror=a>" * 2000,
    "HTML in one another": "<div>" * 20_000,
    "entities": "&amp;&#0;&#x110000;&#xD800;&evil;" * 5000,
    "references": "".join(f"[{n}]: http://a.b/{n}\n" for n in range(10_000)) + "[1] " * 10_000,
    "remote pictures": "![a](http://127.0.0.1:9/a.png) ![b](file:///etc/passwd) " * 2000,
    "links of odd schemes": "[a](javascript:alert(1)) [b](file:///dev/zero) [c](data:text/html,x) " * 2000,
    "controls": "".join(map(chr, range(32))) * 1000,
    "zero bytes": "a\0" * 10_000,
    "from right to left": "\u202e\u05d0\u05d1\u2066" * 20_000,
    "marks on one letter": "a" + "\u0301" * 20_000,
    "joined emoji": "\U0001f468\u200d\U0001f469\u200d\U0001f467" * 5000,
    "letters of private use": "\ue000\uffff\U0010ffff" * 5000,
    "line separators": "a\u2028b\u2029c\x0b\x0c\x85" * 5000,
    "tabs": "\t" * 100_000 + "a",
    "tasks": "- [ ] a\n- [x] b\n" * 5000,
    "escapes": "\\*" * 100_000,
    "thoughts in one another": "<think>" * 5000 + "a" + "</think>" * 5000,
    "numbers of lists out of range": "999999999. a\n" * 2000 + "9999999999999. b",
}


def _make(text: str, folder: Path) -> Call:
    return Call(text=text, store=_stored(text, folder), data=folder / "data")


def _stored(text: str, folder: Path) -> Path:
    """Make a database with a chat whose reply has this text."""
    from rdchat.chat.store import ConversationStore
    from rdchat.inference.api.messages import Role

    path = folder / "data" / "conversations.db"
    path.parent.mkdir()
    store = ConversationStore(path)
    chat = store.create_conversation("Stored")
    prompt = store.add_message(chat.id, None, Role.USER, text[:20_000])
    store.add_message(chat.id, prompt.id, Role.ASSISTANT, text)
    store.close()
    return path


def markdown_cases() -> Iterator[Case]:
    """Yield all cases of markdown."""
    for name, text in TEXTS.items():
        yield Case(Kind.MARKDOWN, name, partial(_make, text))
