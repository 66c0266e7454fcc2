"""The tables, and the migrations from older versions."""

import sqlite3
from collections.abc import Sequence

APPLICATION_ID = 0x52444348  # "RDCH": tells rdchat's databases from others

_SEARCHED = 200_000  # characters of a message, in versions 4 to 13
_DROP_MESSAGE_TRIGGERS = "DROP TRIGGER messages_added; DROP TRIGGER messages_removed; DROP TRIGGER messages_changed;"


def _message_triggers(text: str) -> str:
    """Return triggers that index messages once they are no longer streaming; `text` is the SQL for a row's text."""
    new, old = text.format(row="new"), text.format(row="old")
    return f"""
CREATE TRIGGER messages_added AFTER INSERT ON messages WHEN new.status <> 'streaming' BEGIN
    INSERT INTO messages_index (rowid, text) VALUES (new.id, {new});
END;
CREATE TRIGGER messages_removed AFTER DELETE ON messages WHEN old.status <> 'streaming' BEGIN
    INSERT INTO messages_index (messages_index, rowid, text) VALUES ('delete', old.id, {old});
END;
CREATE TRIGGER messages_changed AFTER UPDATE OF text, status ON messages
WHEN old.status <> 'streaming' OR new.status <> 'streaming' BEGIN
    INSERT INTO messages_index (messages_index, rowid, text)
        SELECT 'delete', old.id, {old} WHERE old.status <> 'streaming';
    INSERT INTO messages_index (rowid, text) SELECT new.id, {new} WHERE new.status <> 'streaming';
END;"""


_SUMMARY = (
    "substr(CASE WHEN json_valid({row}context_cut) THEN json_extract({row}context_cut, '$.summary') END, 1,"
    f" {_SEARCHED})"
)
SUMMARY = _SUMMARY.format(row="")
"""SQL over `messages` for the summary of a row's cut; NULL where there is none."""

MIGRATIONS: tuple[str, ...] = (
    # Messages form a tree by `parent_id`. The active path of a conversation ends in the message with its highest
    # `activated`, a counter that goes up whenever a message is added or chosen: the path below an alternative that was
    # shown last is therefore found without a pointer that could go stale.
    #
    # `parent_id` does not cascade: deleting a chat deletes its messages by `conversation_id`, one by one, and a cascade
    # along a long chat would exceed SQLite's limit of 1,000 nested triggers.
    #
    # `text` comes last, so that reading the other columns touches none of its overflow pages. A reply is indexed for
    # searching when it is finished, not again with each half second of its text.
    f"""
PRAGMA application_id = {APPLICATION_ID};
CREATE TABLE conversations (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    title TEXT NOT NULL,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL,
    deleted_at REAL,
    system_prompt TEXT,
    sampling TEXT
) STRICT;
CREATE INDEX conversations_newest ON conversations (updated_at, id) WHERE deleted_at IS NULL;

CREATE TABLE messages (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    conversation_id INTEGER NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
    parent_id INTEGER REFERENCES messages (id) DEFERRABLE INITIALLY DEFERRED,
    activated INTEGER NOT NULL,
    role TEXT NOT NULL,
    status TEXT NOT NULL,
    created_at REAL NOT NULL,
    model TEXT,
    seed INTEGER,
    finish_reason TEXT,
    error TEXT NOT NULL DEFAULT '',
    statistics TEXT,
    text TEXT NOT NULL
) STRICT;
CREATE INDEX messages_alternatives ON messages (parent_id, conversation_id, role, id);
CREATE INDEX messages_activated ON messages (conversation_id, activated);
CREATE INDEX messages_streaming ON messages (id) WHERE status = 'streaming';

CREATE VIRTUAL TABLE titles_index USING fts5 (
    title, content = 'conversations', content_rowid = 'id', tokenize = 'unicode61 remove_diacritics 2'
);
CREATE TRIGGER titles_added AFTER INSERT ON conversations BEGIN
    INSERT INTO titles_index (rowid, title) VALUES (new.id, new.title);
END;
CREATE TRIGGER titles_removed AFTER DELETE ON conversations BEGIN
    INSERT INTO titles_index (titles_index, rowid, title) VALUES ('delete', old.id, old.title);
END;
CREATE TRIGGER titles_changed AFTER UPDATE OF title ON conversations BEGIN
    INSERT INTO titles_index (titles_index, rowid, title) VALUES ('delete', old.id, old.title);
    INSERT INTO titles_index (rowid, title) VALUES (new.id, new.title);
END;

CREATE VIRTUAL TABLE messages_index USING fts5 (
    text, content = 'messages', content_rowid = 'id', tokenize = 'unicode61 remove_diacritics 2', prefix = '1 2 3'
);
{_message_triggers("{row}.text")}
""",
    # Traces have a table of their own: they are many times as large as the texts, and read one at a time.
    """
ALTER TABLE messages ADD COLUMN drafting TEXT;
CREATE TABLE message_traces (
    message_id INTEGER PRIMARY KEY REFERENCES messages (id) ON DELETE CASCADE,
    trace BLOB NOT NULL
) STRICT;
""",
    # Offsets in `text`, as JSON; NULL where that was not kept, as of replies that broke off.
    "ALTER TABLE messages ADD COLUMN control_offsets TEXT;",
    # Only the beginning of a text is searched: indexing a million words held the window up when a reply ended.
    f"""
{_DROP_MESSAGE_TRIGGERS}DROP TABLE messages_index;
CREATE VIEW messages_searched AS
    SELECT id, substr(text, 1, {_SEARCHED}) AS text FROM messages WHERE status <> 'streaming';
CREATE VIRTUAL TABLE messages_index USING fts5 (
    text, content = 'messages_searched', content_rowid = 'id', tokenize = 'unicode61 remove_diacritics 2',
    prefix = '1 2 3'
);
{_message_triggers(f"substr({{row}}.text, 1, {_SEARCHED})")}
INSERT INTO messages_index (messages_index) VALUES ('rebuild');
""",
    # A chat's folder may be deleted or a folder's parent: what was in them is shown where it would be without them, and
    # undoing the deletion puts everything back.
    #
    # `title_by` is `prompt` for a title made of the first prompt, which the model may replace, `model` once it had its
    # go, and `person` for all others. `unlisted` marks what is shown nowhere: with 1 a chat that is being erased
    # message by message, with 2 one that is being copied or imported. What is left of both after a crash is erased.
    """
CREATE TABLE folders (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    parent_id INTEGER REFERENCES folders (id) ON DELETE SET NULL,
    name TEXT NOT NULL,
    expanded INTEGER NOT NULL DEFAULT 1,
    created_at REAL NOT NULL,
    deleted_at REAL
) STRICT;
ALTER TABLE conversations ADD COLUMN folder_id INTEGER REFERENCES folders (id) ON DELETE SET NULL;
ALTER TABLE conversations ADD COLUMN pinned_at REAL;
ALTER TABLE conversations ADD COLUMN archived_at REAL;
ALTER TABLE conversations ADD COLUMN title_by TEXT NOT NULL DEFAULT 'person';
ALTER TABLE conversations ADD COLUMN unlisted INTEGER NOT NULL DEFAULT 0;
CREATE INDEX folders_nested ON folders (parent_id);
CREATE INDEX conversations_in_folder ON conversations (folder_id);
CREATE INDEX messages_by_model ON messages (model, conversation_id) WHERE model IS NOT NULL;
""",
    # `messages.thinking`: JSON of `Thinking`, NULL where there is nothing to say. `conversations.thinking`: the chat's
    # own choice of whether and how much the model thinks; NULL leaves it to the chat template.
    """
ALTER TABLE messages ADD COLUMN thinking TEXT;
ALTER TABLE conversations ADD COLUMN thinking TEXT;
""",
    # JSON of a `ContextCut`: the model is not told this message and those before it; NULL where it is.
    "ALTER TABLE messages ADD COLUMN context_cut TEXT;",
    # `edited`: the text is the person's version of a reply. `made_with`: JSON of `MadeWith`, NULL where that was not
    # kept.
    #
    # A message that is deleted with all below it has a row for each in `deleted_messages`: one short transaction,
    # however long the chat, and the search index stays as it is until they are erased. `root_id` is the one that was
    # asked for.
    """
ALTER TABLE messages ADD COLUMN edited INTEGER NOT NULL DEFAULT 0;
ALTER TABLE messages ADD COLUMN made_with TEXT;
CREATE TABLE deleted_messages (
    message_id INTEGER PRIMARY KEY REFERENCES messages (id) ON DELETE CASCADE,
    root_id INTEGER NOT NULL,
    deleted_at REAL NOT NULL
) STRICT;
""",
    # The text of a file is stored once, by its SHA-256, however many messages have it, and goes with the last of them.
    # It is in a table of its own, so that opening a chat reads none of it. `conversation_id` is the message's: looking
    # through the messages of a long chat for the few that have files would take a tenth of the time in which it is to
    # open.
    """
CREATE TABLE file_texts (
    digest TEXT PRIMARY KEY,
    text TEXT NOT NULL
) STRICT;
CREATE TABLE message_files (
    id INTEGER PRIMARY KEY,
    message_id INTEGER NOT NULL REFERENCES messages (id) ON DELETE CASCADE,
    conversation_id INTEGER NOT NULL,
    place INTEGER NOT NULL,
    digest TEXT NOT NULL REFERENCES file_texts (digest),
    kind TEXT NOT NULL,
    characters INTEGER NOT NULL,
    taken TEXT NOT NULL,
    note TEXT NOT NULL,
    name TEXT NOT NULL
) STRICT;
CREATE INDEX message_files_in_order ON message_files (message_id, place);
CREATE INDEX message_files_by_chat ON message_files (conversation_id);
CREATE INDEX message_files_by_text ON message_files (digest);
CREATE VIRTUAL TABLE files_index USING fts5 (
    name, content = 'message_files', content_rowid = 'id', tokenize = 'unicode61 remove_diacritics 2'
);
CREATE TRIGGER files_added AFTER INSERT ON message_files BEGIN
    INSERT INTO files_index (rowid, name) VALUES (new.id, new.name);
END;
CREATE TRIGGER files_removed AFTER DELETE ON message_files BEGIN
    INSERT INTO files_index (files_index, rowid, name) VALUES ('delete', old.id, old.name);
    DELETE FROM file_texts WHERE digest = old.digest
        AND NOT EXISTS (SELECT 1 FROM message_files WHERE digest = old.digest);
END;
""",
    # Where the person was reading: the first message in view, and how many pixels of it are above the view. A chat
    # without a row is read at its end.
    """
CREATE TABLE reading_places (
    conversation_id INTEGER PRIMARY KEY REFERENCES conversations (id) ON DELETE CASCADE,
    message_id INTEGER NOT NULL,
    above INTEGER NOT NULL
) STRICT;
""",
    # A long chat is opened with its messages' places alone (`messages_path` has all of them), and what is shown is
    # read.
    """
CREATE INDEX messages_path ON messages (conversation_id, parent_id);
CREATE INDEX messages_cut ON messages (conversation_id) WHERE context_cut IS NOT NULL;
CREATE INDEX messages_measured ON messages (conversation_id) WHERE statistics IS NOT NULL;
""",
    # The summaries that stand for what was left out are searched too. A mark that was tampered with has none; they are
    # made anew with the index (`rebuild`), from the view.
    f"""
CREATE VIEW summaries_searched AS
    SELECT id, {SUMMARY} AS summary FROM messages WHERE context_cut IS NOT NULL;
CREATE VIRTUAL TABLE summaries_index USING fts5 (
    summary, content = 'summaries_searched', content_rowid = 'id', tokenize = 'unicode61 remove_diacritics 2',
    prefix = '1 2 3'
);
CREATE TRIGGER summaries_added AFTER INSERT ON messages WHEN new.context_cut IS NOT NULL BEGIN
    INSERT INTO summaries_index (rowid, summary) VALUES (new.id, {_SUMMARY.format(row="new.")});
END;
CREATE TRIGGER summaries_removed AFTER DELETE ON messages WHEN old.context_cut IS NOT NULL BEGIN
    INSERT INTO summaries_index (summaries_index, rowid, summary)
        VALUES ('delete', old.id, {_SUMMARY.format(row="old.")});
END;
CREATE TRIGGER summaries_changed AFTER UPDATE OF context_cut ON messages BEGIN
    INSERT INTO summaries_index (summaries_index, rowid, summary)
        SELECT 'delete', old.id, {_SUMMARY.format(row="old.")} WHERE old.context_cut IS NOT NULL;
    INSERT INTO summaries_index (rowid, summary)
        SELECT new.id, {_SUMMARY.format(row="new.")} WHERE new.context_cut IS NOT NULL;
END;
INSERT INTO summaries_index (summaries_index) VALUES ('rebuild');
""",
    # What was typed and neither sent nor saved: in a message's editor, or in a chat's field, where there is no message;
    # in a new chat's field, where there is no chat either.
    """
CREATE TABLE unsent_texts (
    conversation_id INTEGER REFERENCES conversations (id) ON DELETE CASCADE,
    message_id INTEGER REFERENCES messages (id) ON DELETE CASCADE,
    text TEXT NOT NULL
) STRICT;
CREATE INDEX unsent_texts_of_chat ON unsent_texts (conversation_id);
CREATE INDEX unsent_texts_of_message ON unsent_texts (message_id);
""",
    # All of a text is searched: a message of 5 MB, of which there are few, takes the index a tenth of a second.
    # The index is made anew, which cannot fail where it was damaged, or did not fit.
    f"""
{_DROP_MESSAGE_TRIGGERS}DROP VIEW messages_searched;
CREATE VIEW messages_searched AS SELECT id, text FROM messages WHERE status <> 'streaming';
{_message_triggers("{row}.text")}
INSERT INTO messages_index (messages_index) VALUES ('rebuild');
""",
    # A path is read by its runs (`MessageTree`): of a long chat that was never branched, one row tells it.
    """
CREATE INDEX messages_runs ON messages (conversation_id, parent_id) WHERE parent_id IS NOT id - 1;
""",
    # The sidebar reads what is in view. What else it shows, such as how many chats a folder holds, is counted in
    # these indexes: one for each of the lists, with all of its chats in their order.
    """
CREATE INDEX conversations_listed ON conversations (folder_id, updated_at, id)
    WHERE deleted_at IS NULL AND unlisted = 0 AND archived_at IS NULL AND pinned_at IS NULL;
CREATE INDEX conversations_pinned ON conversations (pinned_at)
    WHERE deleted_at IS NULL AND unlisted = 0 AND archived_at IS NULL AND pinned_at IS NOT NULL;
CREATE INDEX conversations_archived ON conversations (updated_at, id)
    WHERE deleted_at IS NULL AND unlisted = 0 AND archived_at IS NOT NULL;
CREATE INDEX conversations_deleted ON conversations (deleted_at, id) WHERE deleted_at IS NOT NULL AND unlisted = 0;
CREATE INDEX conversations_hidden ON conversations (unlisted) WHERE unlisted <> 0;
CREATE INDEX conversations_untitled ON conversations (updated_at) WHERE title_by = 'prompt';
CREATE INDEX conversations_titled ON conversations (title) WHERE deleted_at IS NULL AND unlisted = 0;
""",
)
"""Script N-1 turns version N-1 into version N. A released script never changes: a new version appends one."""


def schema_version(connection: sqlite3.Connection) -> int:
    """Return the database's version; 0 is an empty one."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def migrate(connection: sqlite3.Connection, migrations: Sequence[str] = MIGRATIONS) -> None:
    """Bring the database to the newest version, each step in one transaction."""
    for version in range(schema_version(connection) + 1, len(migrations) + 1):
        script = f"BEGIN IMMEDIATE; {migrations[version - 1]}; PRAGMA user_version = {version}; COMMIT;"
        try:
            connection.executescript(script)
        except sqlite3.Error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
