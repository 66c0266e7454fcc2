"""Files of prompts: plain lines, JSON lines, or Spec-Bench's questions; and files of replies."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rdchat.errors import RdchatError
from rdchat.files.foreign_files import parse_json, read_text

# Spec-Bench (Xia et al. 2024, arXiv 2401.07851) counts MT-Bench's eight categories as one group
_MT_BENCH = {"writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities"}
_MAX_BYTES = 256 * 2**20
_FILE_HINT = "Check the path."
_REPLY_HINT = 'Each line is JSON such as {"reply": "..."}.'
_HINT = 'Each line is a question, or JSON such as {"prompt": "...", "category": "..."} or {"turns": ["..."]}.'


@dataclass(frozen=True, slots=True)
class Prompt:
    """A question and the group it belongs to; the group is empty where the file names none."""

    text: str
    group: str = ""


def read_prompts(path: Path) -> list[Prompt]:
    """Read a file of prompts, one a line; empty lines do not count.

    A line that begins with `{` is JSON: `prompt` and perhaps `category`, or Spec-Bench's `turns`, whose first is taken.

    Raises:
        RdchatError: If the file cannot be read, holds no prompt, or has a broken line; the message names it.
    """
    return [_prompt(path, number, line) for number, line in _lines(path, "prompts", _HINT)]


def read_replies(path: Path) -> list[str]:
    """Read a file of replies, a line of JSON such as `{"reply": "..."}` each; raises as `read_prompts` does."""
    replies = []
    for number, line in _lines(path, "replies", _REPLY_HINT):
        reply = _data(path, number, line, _REPLY_HINT).get("reply")
        if not isinstance(reply, str) or not reply.strip():
            raise RdchatError(f"Line {number} of {path} has no reply.", _REPLY_HINT)
        _check_characters(path, number, reply)
        replies.append(reply)
    return replies


def first_of_each_group(prompts: Sequence[Prompt], count: int) -> list[Prompt]:
    """Return the first `count` prompts of every group; groups in order of appearance."""
    groups: dict[str, list[Prompt]] = {}
    for prompt in prompts:
        groups.setdefault(prompt.group, []).append(prompt)
    return [prompt for members in groups.values() for prompt in members[:count]]


def _prompt(path: Path, number: int, line: str) -> Prompt:
    if not line.startswith("{"):
        return Prompt(line)
    data = _data(path, number, line, _HINT)
    turns = data.get("turns")
    text = turns[0] if isinstance(turns, list) and turns else data.get("prompt")
    group = data.get("category") or ""
    if not isinstance(text, str) or not text.strip() or not isinstance(group, str):
        raise RdchatError(f"Line {number} of {path} has no prompt.", _HINT)
    _check_characters(path, number, text + group)
    return Prompt(text, "mt_bench" if turns and group in _MT_BENCH else group)


def _lines(path: Path, what: str, hint: str) -> list[tuple[int, str]]:
    """Return the numbers and texts of the lines that are not empty, at least one."""
    # A JSON text may hold U+2028 and other line separators, so `splitlines` would cut it.
    texts = read_text(path, _FILE_HINT, _MAX_BYTES).split("\n")
    lines = [(number, line.strip()) for number, line in enumerate(texts, start=1) if line.strip()]
    if not lines:
        raise RdchatError(f"The {what} file {path} has no {what}.", hint)
    return lines


def _data(path: Path, number: int, line: str, hint: str) -> dict[str, Any]:
    data = parse_json(line, f"Line {number} of {path} is damaged", hint)
    return data if isinstance(data, dict) else {}


def _check_characters(path: Path, number: int, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:  # A half pair such as "\ud83d", which no tokenizer accepts
        raise RdchatError(f"Line {number} of {path} has half a character.", "Save the file again as UTF-8.") from error
