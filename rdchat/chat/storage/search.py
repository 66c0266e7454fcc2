"""From what a person types into the search field to a condition on conversations."""

import unicodedata

_MOST_CHARACTERS, _MOST_WORDS = 500, 16

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
    words = search[:_MOST_CHARACTERS].replace("\0", " ").encode("utf-8", "replace").decode().split()[:_MOST_WORDS]
    indexed = [word for word in words if _is_indexed(word)]
    literal = [word for word in words if not _is_indexed(word)]
    if not words:
        return "", []
    phrases = ['"' + word.replace('"', '""') + '"' for word in indexed]
    if indexed and words[-1] == indexed[-1]:
        phrases[-1] += "*"
    query = [" ".join(phrases)] if phrases else []

    def matches(rows: str, index: str, column: str) -> str:
        conditions = [f"rowid IN ({_BY_INDEX.format(index=index)})"] if phrases else []
        conditions += [f"instr({column}, ?) > 0"] * len(literal)
        return f"{rows} WHERE {' AND '.join(conditions)}"

    in_titles = matches("SELECT id FROM conversations", "titles_index", "title")
    in_messages = matches("SELECT conversation_id FROM messages", "messages_index", "text")
    return f"(id IN ({in_titles}) OR id IN ({in_messages}))", (query + literal) * 2


def _is_indexed(word: str) -> bool:
    """Tell whether the index's tokens are what a person takes for words: letters of a script with spaces."""
    letters = [character for character in word if unicodedata.category(character)[0] in "LN"]
    return bool(letters) and all(character < "\u0e00" or "\u1e00" <= character < "\u2000" for character in letters)
