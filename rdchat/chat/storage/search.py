"""Searches titles, messages, names of files and summaries for the words that a person types, and makes the index.

The index is SQLite's FTS5: triggers of the schema write to it, and `search_text` says what words are. After an update
it may have to be made anew. Messages are then indexed in the background, from the newest one on, and those before
`indexed_from` of the table `search_state` are read one by one. `SearchReader` answers the window, on a thread of its
own; `matching_chats` serves commands.

The migrations define two views. `messages_searched` has what the index has of a message, its text and calls as words of
`search_text`, but no reply that is still written. `summaries_searched` has a summary as words, and as it was `written`.
"""

import json
import re
import sqlite3
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from rdchat.chat.conversation import Conversation
from rdchat.chat.storage.connections import Rows, any_length, open_reader
from rdchat.chat.storage.database import Database
from rdchat.chat.storage.message_tree import NOT_DELETED
from rdchat.chat.storage.search_text import INDEX_VERSION, WordMatcher, search_phrases
from rdchat.chat.storage.stored_rows import LISTED_COLUMNS, conversation_from, conversations

MAX_HITS = 300
"""Largest number of conversations in an answer."""
# Only the newest messages with the words are read: more would take too long while a person types.
_MAX_MESSAGES = 20_000
# No limit, for SQL's LIMIT.
_ALL = -1
# Characters of a snippet before and after the beginning of its first hit.
_BEFORE = 12
_AFTER = 160
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
_TITLES = "SELECT rowid FROM titles_index WHERE titles_index MATCH ?1"
# The texts of a message that the index has: its text from shortly before the first word on, the names of its files, its
# summary, and its calls of tools.
_TEXTS = """
    SELECT substr(text, max(1, instr(lower(text), ?) - 100), ?),
        coalesce((SELECT group_concat(name, ', ') FROM message_files WHERE message_id = messages.id), ''),
        coalesce((SELECT substr(written, 1, ?) FROM summaries_searched WHERE id = messages.id), ''),
        substr(coalesce(tool_calls, ''), 1, ?)
    FROM messages WHERE id = ?
"""
# Fifty messages are indexed at once.
_NEXT_TO_INDEX = """
    SELECT min(id) FROM (
        SELECT id FROM messages WHERE id < (SELECT indexed_from FROM search_state) ORDER BY id DESC LIMIT 50
    )
"""
# Ascending ids are what the index writes fastest.
_INDEX_FROM = """
    INSERT INTO messages_index (rowid, text) SELECT id, text FROM messages_searched
    WHERE id >= ? AND id < (SELECT indexed_from FROM search_state) ORDER BY id
"""

# The signs that Markdown hides; the named groups are the texts among them that it shows. After the lines with a comment
# come code, links, formulas, signs after a backslash, and emphasis:
# - Formulas: `$x^2$` loses its signs, but "costs $5 and $10" keeps them. A number after the first $ begins a formula
#   only if no two letters in a row come before the next \, ^, _, = or $: `$5x$` is one, `$3 meters$` is not.
# - Emphasis: a single * or _ is a sign only at the beginning or the end of a word, so `a_b` and `2*3` stay.
_MARKS = re.compile(
    r"""
    ^[ \t]*(?:`{3}|~{3}).*$ | </?think>                        # fences
    | ^[ \t|]*:?--[:|\- \t]*$                                  # rules, and the line below a table's head
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
        in_memory: Whether it is in memory.
    """

    def __init__(self, path: Path, *, in_memory: bool = False) -> None:
        self._path = path
        self._in_memory = in_memory
        self._connection: sqlite3.Connection | None = None

    def search_chats(self, query: SearchQuery) -> SearchAnswer:
        """Search titles and messages. Raises sqlite3.Error, also after `interrupt`."""
        conditions = [_LISTED]
        values: list[str | int] = []
        if query.model is not None:
            conditions.append(_WITH_MODEL)
            values.append(query.model)
        if query.folder_id is not None:
            conditions.append(_IN_FOLDER)
            values += [query.folder_id, query.folder_id]
        messages, parameters = _matching_messages(query.text, _MAX_MESSAGES)
        with self._opened() as connection:
            if not parameters:
                chats, total = _newest_chats(connection, conditions, values)
                return SearchAnswer(query, tuple(map(ChatHit, chats)), total)
            grouped = f"SELECT conversation_id, max(id), count(*) FROM ({messages}) GROUP BY conversation_id"
            # The newest message with all words, and the number of these, by chat.
            in_messages = {row[0]: row[1:] for row in connection.execute(grouped, parameters)}
            is_part = sum(count for _, count in in_messages.values()) >= _MAX_MESSAGES
            in_titles = {row[0] for row in connection.execute(_TITLES, parameters[:1])}
            # The ids come as JSON: parameters are limited, and a read-only connection may not make a temporary table.
            ids = json.dumps([*(in_titles | in_messages.keys())])
            chats, total = _newest_chats(connection, [*conditions, _AMONG], [*values, ids])
            matcher = WordMatcher(query.text)
            hits = []
            for chat in chats:
                message_id, count = in_messages.get(chat.id, (None, 0))
                hits.append(ChatHit(chat, count, _snippet_of(connection, message_id, matcher)))
            return SearchAnswer(query, tuple(hits), total, is_part)

    def messages_with(self, conversation_id: int, text: str) -> MessageMatches:
        """Search the messages of one conversation. Raises sqlite3.Error."""
        messages, parameters = _matching_messages(text, _ALL)
        if not parameters:
            return MessageMatches(conversation_id, text)
        sql = f"SELECT id FROM ({messages}) WHERE conversation_id = ?{len(parameters) + 1} ORDER BY id"
        with self._opened() as connection:
            ids = tuple(row[0] for row in connection.execute(sql, (*parameters, conversation_id)))
        return MessageMatches(conversation_id, text, ids)

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
        with closing(open_reader(self._path, in_memory=self._in_memory)) as connection:
            self._connection = connection
            try:
                yield connection
            finally:
                self._connection = None


def _newest_chats(
    connection: sqlite3.Connection, conditions: Sequence[str], values: Sequence[str | int]
) -> tuple[list[Conversation], int]:
    """Return the newest chats for which all conditions hold, at most `MAX_HITS`, and the number of all of them."""
    table = f"FROM conversations WHERE {' AND '.join(conditions)}"
    (count,) = connection.execute(f"SELECT count(*) {table}", values).fetchone()
    newest = f"SELECT {LISTED_COLUMNS} {table} ORDER BY updated_at DESC, id DESC LIMIT {MAX_HITS}"
    return list(map(conversation_from, connection.execute(newest, values))), count


def _snippet_of(connection: sqlite3.Connection, message_id: int | None, matcher: WordMatcher) -> str:
    """Return the snippet of a message; empty without a message.

    It is from the first of the message's texts that has every word, else from all of them: the words may be spread.
    """
    first_word = matcher.search.split()[0].lower()
    texts = connection.execute(_TEXTS, (first_word, _READ, _READ, _READ, message_id)).fetchone() or ()
    return _snippet(next(filter(matcher.is_in, texts), "\n".join(texts)), matcher)


def _snippet(text: str, matcher: WordMatcher) -> str:
    """Return one line of a text around its first hit, without Markdown marks."""
    first = _first_hit(text, matcher)
    near = text[max(0, first - _NEAR) : first + _NEAR]
    visible = _MARKS.sub(lambda mark: mark[mark.lastgroup] if mark.lastgroup else "", near)
    if not matcher.spans(visible, 1):
        # The hit is in text that Markdown hides, such as an address.
        visible = near
    first = _first_hit(visible, matcher)
    begin = max(0, first - _BEFORE)
    if begin:
        space = visible.find(" ", begin, first)
        begin = begin if space < 0 else space + 1
    line = " ".join(visible[begin : first + _AFTER].split())
    return f"…{line}" if begin else line


def _first_hit(text: str, matcher: WordMatcher) -> int:
    """Return the index of the first word of a search in a text; 0 where the text has none."""
    spans = matcher.spans(text, 1)
    return spans[0][0] if spans else 0


def matching_chats(rows: Rows, search: str) -> list[Conversation]:
    """Return the conversations with every word of `search` in their title or in a message, newest first.

    The archive is included; conversations with an unknown date come last.

    Args:
        rows: Reads the store.
        search: Any text; see `search_phrases`. All conversations have what has no word.
    """
    messages, parameters = _matching_messages(search, _ALL)
    has_words = f" AND (id IN ({_TITLES}) OR id IN (SELECT conversation_id FROM ({messages})))" if parameters else ""
    return conversations(rows, f"{_LISTED}{has_words} ORDER BY updated_at DESC, id DESC", *parameters)


def _matching_messages(search: str, limit_count: int) -> tuple[str, list[str]]:
    """Return SQL that selects `id` and `conversation_id` of the newest messages with these words, and its parameters.

    The parameters are numbered: ?1 is the words as FTS5 looks for them, the others are the words one by one. There are
    none where `search` has no word.

    A message is found by its text or its calls, by the name of one of its files, or by its summary. At most
    `limit_count` texts are looked at, the newest first: for a word that most messages have, the index alone would take
    time in proportion to their number. Deleted ones do not count. Messages that are not in the index yet are read.

    `CROSS JOIN` makes SQLite go through the texts that were found, and look up the message of each by its id.
    """
    phrases = search_phrases(search)
    if not phrases:
        return "", []
    # The last word may be incomplete: it has no blank behind.
    pattern = " AND ".join(f'"{each.strip()}"{"" if each[-1] == " " else "*"}' for each in phrases)
    has_phrases = " AND ".join(f"instr(text, ?{number}) > 0" for number in range(2, len(phrases) + 2))
    by_text = f"""
        SELECT id FROM (
            SELECT rowid AS id FROM messages_index WHERE messages_index MATCH ?1
            UNION ALL SELECT id FROM messages_searched
                WHERE id < (SELECT indexed_from FROM search_state) AND {has_phrases}
        ) WHERE {NOT_DELETED} ORDER BY id DESC LIMIT {limit_count}
    """
    files = "SELECT rowid FROM files_index WHERE files_index MATCH ?1"
    by_file = f"SELECT message_id FROM message_files WHERE id IN ({files})"
    by_summary = "SELECT rowid FROM summaries_index WHERE summaries_index MATCH ?1"
    sql = f"""
        SELECT m.id, m.conversation_id FROM ({by_text}) found CROSS JOIN messages m ON m.id = found.id
        UNION SELECT id, conversation_id FROM messages
        WHERE (id IN ({by_file}) OR id IN ({by_summary})) AND {NOT_DELETED}
    """
    return sql, [pattern, *phrases]


def check_index(connection: sqlite3.Connection) -> None:
    """Make the index anew if another version made it; messages follow in `index_messages`."""
    if connection.execute("SELECT version FROM search_state").fetchall() != [(INDEX_VERSION,)]:
        rebuild_search(connection)


def rebuild_search(connection: sqlite3.Connection) -> None:
    """Make the search index anew from the chats; messages follow in `index_messages`."""
    with any_length(connection):
        for index in ("titles_index", "files_index", "summaries_index"):
            connection.execute(f"INSERT INTO {index} ({index}) VALUES ('rebuild')")
    connection.execute("INSERT INTO messages_index (messages_index) VALUES ('delete-all')")
    connection.execute("DELETE FROM search_state")
    connection.execute("INSERT INTO search_state SELECT ?, coalesce(max(id) + 1, 0) FROM messages", (INDEX_VERSION,))


def index_messages(database: Database) -> Generator[None]:
    """Index the messages that are not in the index yet, the newest ones first: bulk work for `Database.run_bulk`."""
    while (first := database.connection.execute(_NEXT_TO_INDEX).fetchone()[0]) is not None:
        with any_length(database.connection):
            database.connection.execute(_INDEX_FROM, (first,))
        database.connection.execute("UPDATE search_state SET indexed_from = ?", (first,))
        yield
    database.connection.execute("UPDATE search_state SET indexed_from = 0 WHERE indexed_from > 0")
