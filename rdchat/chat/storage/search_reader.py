"""Searches the conversations on a connection of its own, for a thread beside the window's."""

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rdchat.chat.conversation import Conversation
from rdchat.chat.search_words import WordMatcher
from rdchat.chat.storage.connections import open_reader
from rdchat.chat.storage.message_tree import KEPT
from rdchat.chat.storage.rows import CONVERSATION_COLUMNS, conversation_from
from rdchat.chat.storage.search import message_condition, newest_messages, title_condition

MOST_FOUND = 300  # conversations of an answer
_MOST_MESSAGES = 20_000  # the newest ones with the words: more would take longer than typing
_BEFORE, _AFTER = 12, 160  # characters of a snippet around its first hit
_READ = 20_000  # characters of a message that are looked at for a snippet
_LISTED = "deleted_at IS NULL AND unlisted = 0"
_IN_FOLDER = "folder_id IN (SELECT id FROM folders WHERE id = ? OR parent_id = ?)"
_AMONG = "id IN (SELECT value FROM json_each(?))"
_WITH_MODEL = f"id IN (SELECT conversation_id FROM messages WHERE model = ? AND {KEPT})"
_TEXT = """
    SELECT substr(text, 1, ?),
        coalesce((SELECT group_concat(name, ', ') FROM message_files WHERE message_id = messages.id), ''),
        coalesce((SELECT substr(summary, 1, ?) FROM summaries_searched WHERE id = messages.id), '')
    FROM messages WHERE id = ?
"""  # what was said, the files' names, and the summary that stands for it and what is above
_FAR_BEHIND = """
    SELECT substr(text, place - 100, ?) FROM (SELECT text, instr(lower(text), ?) AS place FROM messages WHERE id = ?)
    WHERE place > 100
"""
# the next name in the index each time: listing them takes as long as there are names, not messages
_MODELS = """
    WITH RECURSIVE names (name) AS (
        SELECT min(model) FROM messages WHERE model IS NOT NULL
        UNION ALL SELECT (SELECT min(model) FROM messages WHERE model IS NOT NULL AND model > name)
            FROM names WHERE name IS NOT NULL
    )
    SELECT name FROM names WHERE name IS NOT NULL
"""


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """A search. Fields that are empty or None do not count.

    Attributes:
        words: As typed.
        model: Name of a model that wrote some of a conversation.
        folder_id: A folder; what is in those in it counts too.
    """

    words: str = ""
    model: str | None = None
    folder_id: int | None = None

    def __bool__(self) -> bool:
        return bool(self.words.strip()) or self.model is not None or self.folder_id is not None


@dataclass(frozen=True, slots=True)
class ChatHit:
    """A conversation with hits.

    Attributes:
        conversation: It.
        messages: Number of its messages that have every word.
        snippet: Some of the newest of them, around the first word; empty where only the title has them.
    """

    conversation: Conversation
    messages: int = 0
    snippet: str = ""


@dataclass(frozen=True, slots=True)
class SearchAnswer:
    """The result of a search.

    Attributes:
        query: What was looked for.
        hits: Newest first, at most `MOST_FOUND`.
        found: How many there are.
        is_part: So many messages have the words that only the newest were looked at: there may be more.
    """

    query: SearchQuery
    hits: tuple[ChatHit, ...] = ()
    found: int = 0
    is_part: bool = False


@dataclass(frozen=True, slots=True)
class FoundMessages:
    """Ids of the messages of a conversation that have all words of a search, alternatives included."""

    conversation_id: int
    words: str
    ids: tuple[int, ...] = ()


class SearchReader:
    """Answers one search at a time; `interrupt` may come from another thread.

    Args:
        path: The database of a `ConversationStore` that is open in this process, which has checked it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None

    def search(self, query: SearchQuery) -> SearchAnswer:
        """Search titles and messages. Raises sqlite3.Error, also where `interrupt` ended it."""
        where: list[str] = [_LISTED]
        parameters: list[str | int] = []
        if query.model is not None:
            where.append(_WITH_MODEL)
            parameters.append(query.model)
        if query.folder_id is not None:
            where.append(_IN_FOLDER)
            parameters += [query.folder_id, query.folder_id]
        messages, words = newest_messages(query.words, _MOST_MESSAGES)
        in_title, in_title_words = title_condition(query.words)
        with self._opened() as connection:
            if not words:
                rows, found = _newest_chats(connection, where, parameters)
                return SearchAnswer(query, tuple(ChatHit(conversation_from(row)) for row in rows), found)
            counted = {
                chat: (newest_id, count)
                for chat, newest_id, count in connection.execute(
                    f"SELECT conversation_id, max(id), count(*) FROM ({messages}) GROUP BY conversation_id",
                    words,
                )
            }
            is_part = sum(count for _, count in counted.values()) >= _MOST_MESSAGES
            titled = {
                row[0] for row in connection.execute(f"SELECT id FROM conversations WHERE {in_title}", in_title_words)
            }
            # in JSON: a statement takes so many parameters, and no temporary table where it may only read
            among = json.dumps([*(titled | counted.keys())])
            rows, found = _newest_chats(connection, [*where, _AMONG], [*parameters, among])
            matcher = WordMatcher(query.words)
            hits = []
            for row in rows:
                message_id, count = counted.get(row[0], (None, 0))
                snippet = "" if message_id is None else _snippet(_text(connection, message_id, matcher), matcher)
                hits.append(ChatHit(conversation_from(row), count, snippet))
            return SearchAnswer(query, tuple(hits), found, is_part)

    def messages_with(self, conversation_id: int, words: str) -> FoundMessages:
        """Search the messages of one conversation. Raises sqlite3.Error."""
        condition, parameters = message_condition(words)
        if not condition:
            return FoundMessages(conversation_id, words)
        sql = f"SELECT id FROM messages WHERE conversation_id = ? AND {condition} ORDER BY id"
        with self._opened() as connection:
            ids = tuple(row[0] for row in connection.execute(sql, (conversation_id, *parameters)))
        return FoundMessages(conversation_id, words, ids)

    def models(self) -> tuple[str, ...]:
        """Return the names of the models that wrote replies. Raises sqlite3.Error."""
        with self._opened() as connection:
            return tuple(row[0] for row in connection.execute(_MODELS))

    def interrupt(self) -> None:
        """End a search under way."""
        if (connection := self._connection) is not None:
            connection.interrupt()

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        """Open the file for each search: it may have been brought back since the last one."""
        with closing(open_reader(self._path)) as connection:
            self._connection = connection
            try:
                yield connection
            finally:
                self._connection = None


def _newest_chats(
    connection: sqlite3.Connection, where: Sequence[str], parameters: Sequence[str | int]
) -> tuple[list[tuple[Any, ...]], int]:
    """Return the newest rows for which all conditions hold, and how many there are."""
    table = f"FROM conversations WHERE {' AND '.join(where)}"
    (count,) = connection.execute(f"SELECT count(*) {table}", parameters).fetchone()
    newest = f"SELECT {CONVERSATION_COLUMNS} {table} ORDER BY updated_at DESC, id DESC LIMIT {MOST_FOUND}"
    return connection.execute(newest, parameters).fetchall(), count


def _text(connection: sqlite3.Connection, message_id: int, matcher: WordMatcher) -> str:
    """Return the text that has all the words; where they are far behind in one, what is around the first of them."""
    texts: tuple[str, ...] = connection.execute(_TEXT, (_READ, _READ, message_id)).fetchone() or ()
    for text in texts:
        if matcher.is_in(text):
            return text
    first = matcher.search.split()[0].lower()
    far = connection.execute(_FAR_BEHIND, (_READ, first, message_id)).fetchone()
    return str(far[0]) if far else "\n".join(texts)


def _snippet(text: str, matcher: WordMatcher) -> str:
    """Return one line of a text around its first hit."""
    spans = matcher.spans(text, 1)
    first = spans[0][0] if spans else 0
    begin = max(0, first - _BEFORE)
    if begin:
        space = text.find(" ", begin, first)
        begin = begin if space < 0 else space + 1
    line = " ".join(text[begin : first + _AFTER].split())
    return f"…{line}" if begin else line
