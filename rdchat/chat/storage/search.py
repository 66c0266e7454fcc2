"""Searches titles, messages, names of files and summaries for the words that a person types."""

import json
import re
import sqlite3
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

from rdchat.chat.conversation import Conversation
from rdchat.chat.storage.connections import open_reader
from rdchat.chat.storage.message_tree import NOT_DELETED
from rdchat.chat.storage.rows import CONVERSATION_COLUMNS, conversation_from

_MAX_CHARACTERS, _MAX_WORDS = 500, 16
# Each of these letters in a word doubles the number of spellings.
_SHARP_S, _MAX_SHARP_S = re.compile("ss|[ßẞ]", re.IGNORECASE), 4
_LETTER = r"[^\W_]"
# Scripts beyond this, such as Hangul, would be split into parts of letters.
_DECOMPOSED_BELOW = "\u2000"
MAX_HITS = 300
"""Largest number of conversations in an answer."""
# Only the newest messages with the words are read: more would take too long while a person types.
_MAX_MESSAGES = 20_000
# No limit.
_ALL = -1
# Characters of a snippet before and after the beginning of its first hit.
_BEFORE, _AFTER = 12, 160
# Characters before and after the hit that are read as Markdown.
_NEAR = 400
# Characters of a message that are read for a snippet.
_READ = 20_000
_LISTED = "deleted_at IS NULL AND unlisted = 0"
_IN_FOLDER = "folder_id IN (SELECT id FROM folders WHERE id = ? OR parent_id = ?)"
_AMONG = "id IN (SELECT value FROM json_each(?))"
_WITH_MODEL = f"id IN (SELECT conversation_id FROM messages WHERE model = ? AND {NOT_DELETED})"
# An index covers this query.
_MODELS = "SELECT DISTINCT model FROM messages WHERE model IS NOT NULL ORDER BY model"
# A summary as `summaries_searched` has it.
_SUMMARY = "substr(CASE WHEN json_valid(context_cut) THEN json_extract(context_cut, '$.summary') END, 1, 200000)"
# Returns the text from shortly before the first word on, the names of files, the summary, and the calls of tools.
_TEXT = """
    SELECT substr(text, max(1, instr(lower(text), ?) - 100), ?),
        coalesce((SELECT group_concat(name, ', ') FROM message_files WHERE message_id = messages.id), ''),
        coalesce((SELECT substr(summary, 1, ?) FROM summaries_searched WHERE id = messages.id), ''),
        substr(coalesce(tool_calls, ''), 1, ?)
    FROM messages WHERE id = ?
"""

# This matches the signs that Markdown hides; the named groups are the texts that it shows.
_MARKS = re.compile(
    r"""
    ^[ \t]*(?:`{3}|~{3}).*$ | </?think>                        # fences
    | ^[ \t|]*:?-{2,}[:|\- \t]*$                                # rules, and the line below a table's head
    | ^[ \t]*(?:>[ \t]?)+(?:(?:\#{1,6}|[-*+])[ \t]+)? | ^[ \t]*(?:\#{1,6}|[-*+])[ \t]+  # quotes, headings and lists
    | (?:^|(?<=[ \t]))\|(?=[ \t]|$)                         # between the cells of a table
    | (`{1,2})(?P<code>[^`\n]+)\1 | `+
    | !?\[(?P<link>[^\]\n]*)\]\([^)\n]*\)
    | (?<!\w)\${1,2}(?!\s|\d[\d.,]*[^\\^_=$]*[^\W\d_]{2})(?P<formula>[^$]*[^\s$])\${1,2}(?!\w) | \\[()\[\]]
    | \\(?P<escaped>[*_`\#$|~])
    | \*{2,3}+(?=\S) | (?<=\S)\*{2,3} | ~~ | (?<!\w)(?:\*|_{1,3})(?=\w) | (?<=\w|[.!?])(?:\*|_{1,3})(?!\w)
    """,
    re.VERBOSE | re.MULTILINE,
)


def split_words(search: str) -> list[str]:
    """Return the words of a person's search, up to the limit."""
    return search[:_MAX_CHARACTERS].replace("\0", " ").encode("utf-8", "replace").decode().split()[:_MAX_WORDS]


def is_indexed(word: str) -> bool:
    """Return whether a word is one token of the index: letters of a script with spaces."""
    letters = [character for character in word if unicodedata.category(character)[0] in "LN"]
    return bool(letters) and all(character < "\u0e00" or "\u1e00" <= character < "\u2000" for character in letters)


def spellings(word: str) -> list[str]:
    """Return a word with each ss and ß in both spellings: the index keeps Straße and STRASSE apart."""
    parts = _SHARP_S.split(word)
    if not 1 < len(parts) <= _MAX_SHARP_S + 1:
        return [word]
    choices = product(("ss", "ß"), repeat=len(parts) - 1)
    return ["".join(map("".join, zip(parts, (*choice, ""), strict=True))) for choice in choices]


class WordMatcher:
    """Finds the words of a search in a text, ignoring case, accents and ß; the last word matches beginnings too.

    Args:
        search: Any text; quotes and operators have no special meaning.
        beginnings: Whether the other words match beginnings too.
    """

    def __init__(self, search: str, *, beginnings: bool = False) -> None:
        words = split_words(search)
        made = (
            _pattern(word, unfinished=beginnings or index == len(words)) for index, word in enumerate(words, start=1)
        )
        # An accent alone cannot be searched.
        patterns = [pattern for pattern in made if pattern]
        self._each = [re.compile(pattern) for pattern in dict.fromkeys(patterns)]
        self._any = re.compile("|".join(patterns)) if patterns else None
        self.search = " ".join(words)

    def __bool__(self) -> bool:
        return self._any is not None

    def is_in(self, text: str) -> bool:
        """Return whether the text has every word."""
        if self._any is None:
            return False
        folded, _ = _folded(text)
        return all(pattern.search(folded) for pattern in self._each)

    def spans(self, text: str, limit: int = 1000) -> list[tuple[int, int]]:
        """Return start and end of the words in the text, at most `limit`."""
        if self._any is None:
            return []
        folded, indexes = _folded(text)
        spans: list[tuple[int, int]] = []
        for match in self._any.finditer(folded):
            begin, end = match.span()
            spans.append((begin, end) if indexes is None else (indexes[begin], indexes[end - 1] + 1))
            if len(spans) >= limit:
                break
        return spans


def _pattern(word: str, *, unfinished: bool) -> str:
    folded, _ = _folded(word)
    if not is_indexed(word):
        return re.escape(folded)
    tokens = [_SHARP_S.sub("(?:ss|ß)", re.escape(token)) for token in re.findall(f"{_LETTER}+", folded)]
    return f"(?<!{_LETTER})" + r"[\W_]+".join(tokens) + ("" if unfinished else f"(?!{_LETTER})")


def _folded(text: str) -> tuple[str, list[int] | None]:
    """Return a text in lower case without accents, and the original index of each character; None if all agree."""
    if text.isascii():
        return text.lower(), None
    folded = [_fold(character) for character in text]
    if "" not in folded:
        return "".join(folded), None
    return "".join(folded), [index for index, character in enumerate(folded) if character]


@cache
def _fold(character: str) -> str:
    """Return a letter's base in lower case; empty for a combining accent."""
    if unicodedata.category(character) == "Mn":
        return "" if character < _DECOMPOSED_BELOW else character
    base = unicodedata.normalize("NFD", character)[0] if character < _DECOMPOSED_BELOW else character
    return base.lower()[0]


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """A search. Fields that are empty or None do not filter.

    Attributes:
        text: The text as the person typed it.
        model: Name of a model that wrote a message in the conversation.
        folder_id: A folder; its inner folders count too.
    """

    text: str = ""
    model: str | None = None
    folder_id: int | None = None

    def __bool__(self) -> bool:
        return bool(self.text.strip()) or self.model is not None or self.folder_id is not None


@dataclass(frozen=True, slots=True)
class ChatHit:
    """A conversation that was found.

    Attributes:
        messages: Number of its messages with every word.
        snippet: Text of the newest such message around the first word; empty if only the title matches.
    """

    conversation: Conversation
    messages: int = 0
    snippet: str = ""


@dataclass(frozen=True, slots=True)
class SearchAnswer:
    """The result of a search.

    Attributes:
        hits: The conversations, newest first, at most `MAX_HITS`.
        total: Number of all conversations that match.
        is_part: Whether only the newest of many messages were searched, so that there may be more.
    """

    query: SearchQuery
    hits: tuple[ChatHit, ...] = ()
    total: int = 0
    is_part: bool = False


@dataclass(frozen=True, slots=True)
class MessageMatches:
    """Ids of a conversation's messages with all words of a search, including alternatives."""

    conversation_id: int
    text: str
    ids: tuple[int, ...] = ()


class SearchReader:
    """Answers one search at a time; `interrupt` may be called from another thread.

    Args:
        path: The database of a `ConversationStore` that is open, and so was checked, in this process.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None

    def search(self, query: SearchQuery) -> SearchAnswer:
        """Search titles and messages. Raises sqlite3.Error, also after `interrupt`."""
        where: list[str] = [_LISTED]
        parameters: list[str | int] = []
        if query.model is not None:
            where.append(_WITH_MODEL)
            parameters.append(query.model)
        if query.folder_id is not None:
            where.append(_IN_FOLDER)
            parameters += [query.folder_id, query.folder_id]
        messages, words = _messages_with(query.text, _MAX_MESSAGES)
        in_title, title_parameters = _condition(query.text, "titles_index", "title")
        with self._opened() as connection:
            if not words:
                rows, total = _newest_chats(connection, where, parameters)
                return SearchAnswer(query, tuple(ChatHit(conversation_from(row)) for row in rows), total)
            counted = {
                chat: (newest_id, count)
                for chat, newest_id, count in connection.execute(
                    f"SELECT conversation_id, max(id), count(*) FROM ({messages}) GROUP BY conversation_id",
                    words,
                )
            }
            is_part = sum(count for _, count in counted.values()) >= _MAX_MESSAGES
            titled = {
                row[0] for row in connection.execute(f"SELECT id FROM conversations WHERE {in_title}", title_parameters)
            }
            # The ids come as JSON: parameters are limited, and a read-only connection may not make a temporary table.
            among = json.dumps([*(titled | counted.keys())])
            rows, total = _newest_chats(connection, [*where, _AMONG], [*parameters, among])
            matcher = WordMatcher(query.text)
            hits = []
            for row in rows:
                message_id, count = counted.get(row[0], (None, 0))
                snippet = ""
                if message_id is not None:
                    parameters_of_text = (matcher.search.split()[0].lower(), _READ, _READ, _READ, message_id)
                    texts = connection.execute(_TEXT, parameters_of_text).fetchone() or ()
                    snippet = _snippet(next(filter(matcher.is_in, texts), "\n".join(texts)), matcher)
                hits.append(ChatHit(conversation_from(row), count, snippet))
            return SearchAnswer(query, tuple(hits), total, is_part)

    def messages_with(self, conversation_id: int, words: str) -> MessageMatches:
        """Search the messages of one conversation. Raises sqlite3.Error."""
        messages, parameters = _messages_with(words, _ALL)
        if not messages:
            return MessageMatches(conversation_id, words)
        sql = f"SELECT id FROM ({messages}) WHERE conversation_id = ? ORDER BY id"
        with self._opened() as connection:
            ids = tuple(row[0] for row in connection.execute(sql, (*parameters, conversation_id)))
        return MessageMatches(conversation_id, words, ids)

    def models(self) -> tuple[str, ...]:
        """Return the names of the models that wrote replies. Raises sqlite3.Error."""
        with self._opened() as connection:
            return tuple(row[0] for row in connection.execute(_MODELS))

    def interrupt(self) -> None:
        """End a running search."""
        if (connection := self._connection) is not None:
            connection.interrupt()

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        """Open the file for each search, since it may have been brought back since the last one."""
        with closing(open_reader(self._path)) as connection:
            self._connection = connection
            try:
                yield connection
            finally:
                self._connection = None


def _newest_chats(
    connection: sqlite3.Connection, where: Sequence[str], parameters: Sequence[str | int]
) -> tuple[list[tuple[Any, ...]], int]:
    """Return the newest rows for which all conditions hold, and the number of all such rows."""
    table = f"FROM conversations WHERE {' AND '.join(where)}"
    (count,) = connection.execute(f"SELECT count(*) {table}", parameters).fetchone()
    newest = f"SELECT {CONVERSATION_COLUMNS} {table} ORDER BY updated_at DESC, id DESC LIMIT {MAX_HITS}"
    return connection.execute(newest, parameters).fetchall(), count


def _snippet(text: str, matcher: WordMatcher) -> str:
    """Return one line of a text around its first hit, without Markdown marks."""
    first = _first_hit(text, matcher)
    near = text[max(0, first - _NEAR) : first + _NEAR]
    visible = _MARKS.sub(lambda mark: mark[mark.lastgroup] if mark.lastgroup else "", near)
    # The hit is in text that Markdown hides, such as an address.
    if not matcher.spans(visible, 1):
        visible = near
    first = _first_hit(visible, matcher)
    begin = max(0, first - _BEFORE)
    if begin:
        space = visible.find(" ", begin, first)
        begin = begin if space < 0 else space + 1
    line = " ".join(visible[begin : first + _AFTER].split())
    return f"…{line}" if begin else line


def _first_hit(text: str, matcher: WordMatcher) -> int:
    spans = matcher.spans(text, 1)
    return spans[0][0] if spans else 0


def search_condition(search: str) -> tuple[str, list[str]]:
    """Return an SQL condition for conversations with every word of `search` in their title or in a message.

    The last word may be incomplete. Text in scripts without spaces (Chinese, Japanese, Thai ...) and words without
    letters (emoji, signs) are not tokens of the index, so they are searched literally.

    Args:
        search: Any text; quotes and operators have no special meaning.

    Returns:
        An expression over `conversations.id`, and its parameters; ("", []) where `search` has no word.
    """
    in_titles, parameters = _condition(search, "titles_index", "title")
    messages, more = _messages_with(search, _ALL)
    if not parameters:
        return "", []
    titles = f"SELECT id FROM conversations WHERE {in_titles}"
    return f"(id IN ({titles}) OR id IN (SELECT conversation_id FROM ({messages})))", parameters + more


def _messages_with(search: str, limit_count: int) -> tuple[str, list[str]]:
    """Return SQL for `id` and `conversation_id` of the newest messages with these words, and its parameters.

    A message is found by its text or its calls, by the name of one of its files, or by its summary. At most
    `limit_count` texts are looked at, the newest first: for a word that most messages have, the index alone would take
    time in proportion to their number. ("", []) where `search` has no word.
    """
    words, literal = _phrases(search)
    if not (words or literal):
        return "", []
    source, limit = "messages m", f"ORDER BY m.id DESC LIMIT {limit_count}"
    if words:
        newest = (
            f"SELECT rowid FROM messages_index WHERE messages_index MATCH ? ORDER BY rowid DESC LIMIT {limit_count}"
        )
        source, limit = f"({newest}) found CROSS JOIN messages m ON m.id = found.rowid", ""
    where = " AND ".join([f"m.{NOT_DELETED}", *["instr(m.text || coalesce(m.tool_calls, ''), ?) > 0"] * len(literal)])
    in_texts = f"SELECT m.id, m.conversation_id FROM {source} WHERE {where} {limit}"
    in_names, names = _condition(search, "files_index", "name")
    in_summaries, summaries = _condition(search, "summaries_index", _SUMMARY, "id")
    files = f"SELECT message_id FROM message_files WHERE {in_names}"
    # This does not use the view: an untrusted schema may not call JSON functions there.
    cuts = f"SELECT id FROM messages WHERE context_cut IS NOT NULL AND {in_summaries}"
    others = f"SELECT id, conversation_id FROM messages WHERE (id IN ({files}) OR id IN ({cuts})) AND {NOT_DELETED}"
    parameters = [*([words] if words else []), *literal, *names, *summaries]
    return f"SELECT * FROM ({in_texts}) UNION {others}", parameters


def _condition(search: str, index: str, column: str, key: str = "rowid") -> tuple[str, list[str]]:
    """Return an SQL condition for rows of an indexed table whose column has the words, and its parameters."""
    words, literal = _phrases(search)
    conditions = [f"{key} IN (SELECT rowid FROM {index} WHERE {index} MATCH ?)"] if words else []
    conditions += [f"instr({column}, ?) > 0"] * len(literal)
    return " AND ".join(conditions), [*([words] if words else []), *literal]


def _phrases(search: str) -> tuple[str, list[str]]:
    """Return a query for the index, perhaps empty, and the words that the index does not cover."""
    words = split_words(search)
    phrases = [
        _phrase(word, unfinished=number == len(words)) for number, word in enumerate(words, start=1) if is_indexed(word)
    ]
    return " AND ".join(phrases), [word for word in words if not is_indexed(word)]


def _phrase(word: str, *, unfinished: bool) -> str:
    quoted = ['"' + each.replace('"', '""') + '"' + "*" * unfinished for each in spellings(word)]
    return f"({' OR '.join(quoted)})"


def rebuild_search(connection: sqlite3.Connection) -> None:
    """Rebuild the search index from the chats; takes some seconds for 100,000 messages."""
    for index in ("titles_index", "messages_index", "files_index", "summaries_index"):
        connection.execute(f"INSERT INTO {index} ({index}) VALUES ('rebuild')")
