"""Makes SQL of what a person types into the search field."""

import sqlite3

from rdchat.chat.search_words import is_indexed, spellings, split_words
from rdchat.chat.storage.message_tree import KEPT
from rdchat.chat.storage.schema import SUMMARY

_ALL = -1  # no limit
_BY_INDEX = "SELECT rowid FROM {index} WHERE {index} MATCH ?"


def search_condition(search: str) -> tuple[str, list[str]]:
    """Return SQL that holds for conversations whose title, or one of whose messages, has every word of `search`.

    The last word may be the beginning of one. Words without spaces between them (Chinese, Japanese, Thai ...) and
    words without letters (emoji, signs) are no tokens of the index, so they are looked for as they stand.

    Args:
        search: Anything. Quotes and operators mean themselves.

    Returns:
        An expression over `conversations.id` and `conversations.title`, and its parameters; ("", []) where `search`
        has no word.
    """
    in_titles, parameters = title_condition(search)
    in_messages, more = message_condition(search)
    if not parameters:
        return "", []
    titles = f"SELECT id FROM conversations WHERE {in_titles}"
    messages = f"SELECT conversation_id FROM messages WHERE {in_messages}"
    return f"(id IN ({titles}) OR id IN ({messages}))", parameters + more


def title_condition(search: str) -> tuple[str, list[str]]:
    """Return SQL over `conversations.rowid` and `title`, and its parameters; see `search_condition`."""
    return _condition(search, "titles_index", "title")


def message_condition(search: str) -> tuple[str, list[str]]:
    """Return SQL over `messages.id`, and its parameters; see `newest_messages`."""
    found, parameters = newest_messages(search, _ALL)
    return (f"id IN (SELECT id FROM ({found}))", parameters) if found else ("", [])


def newest_messages(search: str, most: int) -> tuple[str, list[str]]:
    """Return SQL for `id` and `conversation_id` of the newest messages with these words, and its parameters.

    A message is found by its text, by the name of one of its files, or by the summary that stands for it. At most so
    many texts are looked at, the newest first: of a word that most messages have, the index alone would take as long
    as there are messages. ("", []) where `search` has no word.
    """
    found, parameters = _newest_texts(search, most)
    if not found:
        return "", []
    beside, more = _beside_condition(search)
    others = f"SELECT id, conversation_id FROM messages WHERE ({beside}) AND {KEPT}"
    return f"SELECT * FROM ({found}) UNION {others}", parameters + more


def _newest_texts(search: str, most: int) -> tuple[str, list[str]]:
    words, literal = _phrases(search)
    signs = " AND ".join(["instr(m.text, ?) > 0"] * len(literal))
    if not words:
        kept = f"{signs} AND m.{KEPT}"
        found = f"SELECT m.id, m.conversation_id FROM messages m WHERE {kept} ORDER BY m.id DESC LIMIT {most}"
        return (found, literal) if literal else ("", [])
    newest = f"{_BY_INDEX.format(index='messages_index')} ORDER BY rowid DESC LIMIT {most}"
    join = f"SELECT m.id, m.conversation_id FROM ({newest}) found CROSS JOIN messages m ON m.id = found.rowid"
    join += f" WHERE m.{KEPT}"
    return f"{join} AND {signs}" if literal else join, [words, *literal]


def _beside_condition(search: str) -> tuple[str, list[str]]:
    """Return SQL over `messages.id` for words that are not in a text: in a file's name or a summary; its parameters."""
    in_files, names = _condition(search, "files_index", "name")
    in_summaries, summaries = _condition(search, "summaries_index", SUMMARY, "id")
    files = f"SELECT message_id FROM message_files WHERE {in_files}"
    # not from the view: a connection that does not trust the schema runs no JSON function for one
    cuts = f"SELECT id FROM messages WHERE context_cut IS NOT NULL AND {in_summaries}"
    return f"id IN ({files}) OR id IN ({cuts})", names + summaries


def _condition(search: str, index: str, column: str, key: str = "rowid") -> tuple[str, list[str]]:
    phrases, literal = _phrases(search)
    conditions = [f"{key} IN ({_BY_INDEX.format(index=index)})"] if phrases else []
    conditions += [f"instr({column}, ?) > 0"] * len(literal)
    return " AND ".join(conditions), [*([phrases] if phrases else []), *literal]


def _phrases(search: str) -> tuple[str, list[str]]:
    """Return a query for the index, empty where it knows none of the words, and the words to be looked for as such."""
    words = split_words(search)
    phrases = [
        _phrase(word, unfinished=place == len(words)) for place, word in enumerate(words, start=1) if is_indexed(word)
    ]
    return " AND ".join(phrases), [word for word in words if not is_indexed(word)]


def _phrase(word: str, *, unfinished: bool) -> str:
    quoted = ['"' + each.replace('"', '""') + '"' + "*" * unfinished for each in spellings(word)]
    return f"({' OR '.join(quoted)})"


def rebuild_search(connection: sqlite3.Connection) -> None:
    """Make the search index anew from the chats: some seconds for 100,000 messages."""
    for index in ("titles_index", "messages_index", "files_index", "summaries_index"):
        connection.execute(f"INSERT INTO {index} ({index}) VALUES ('rebuild')")
