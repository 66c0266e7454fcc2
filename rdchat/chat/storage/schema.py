"""The database's tables. Version 1 is that of the first release, 0.1.0; later versions migrate from there."""

import sqlite3
from collections.abc import Sequence

APPLICATION_ID = 0x52444331
""""RDC1" identifies rdchat's databases, but not those of its development before 0.1.0."""

_SUMMARY_CHARACTERS = 200_000
"""Limit of the indexed characters of a summary."""


def _triggers(
    index: str, column: str, columns: str, *, text: str, table: str = "messages", condition: str = "1", when: str = ""
) -> str:
    """Return triggers that index the rows of a table for which a condition holds.

    Args:
        index: Name of the index, without `_index`.
        column: Column of the index.
        columns: Columns whose change may change the text or the condition.
        text: SQL of the text, with `{row}` for the row and its dot.
        table: The table.
        condition: SQL, with `{row}` as well.
        when: SQL condition for changes that count.
    """
    new, old, is_in, was_in = (sql.format(row=row) for sql in (text, condition) for row in ("new.", "old."))
    entries = f"{index}_index"
    return f"""
CREATE TRIGGER {index}_added AFTER INSERT ON {table} WHEN {is_in} BEGIN
    INSERT INTO {entries} (rowid, {column}) VALUES (new.id, {new});
END;
CREATE TRIGGER {index}_removed AFTER DELETE ON {table} WHEN {was_in} BEGIN
    INSERT INTO {entries} ({entries}, rowid, {column}) VALUES ('delete', old.id, {old});
END;
CREATE TRIGGER {index}_changed AFTER UPDATE OF {columns} ON {table} {when} BEGIN
    INSERT INTO {entries} ({entries}, rowid, {column}) SELECT 'delete', old.id, {old} WHERE {was_in};
    INSERT INTO {entries} (rowid, {column}) SELECT new.id, {new} WHERE {is_in};
END;"""


_FINISHED = "{row}status <> 'streaming'"
_SUMMARY = (
    "substr(CASE WHEN json_valid({row}context_cut) THEN json_extract({row}context_cut, '$.summary') END, 1,"
    f" {_SUMMARY_CHARACTERS})"
)
SUMMARY = _SUMMARY.format(row="")
"""SQL over `messages` for the summary of a row's cut; NULL without one."""

MIGRATIONS: tuple[str, ...] = (
    f"""
PRAGMA application_id = {APPLICATION_ID};

-- A chat's folder, or a folder's parent, may be deleted: its content is shown as if the folder did not exist, and
-- undoing the deletion restores everything.
CREATE TABLE folders (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    parent_id INTEGER REFERENCES folders (id) ON DELETE SET NULL,
    name TEXT NOT NULL,
    expanded INTEGER NOT NULL DEFAULT 1,
    created_at REAL NOT NULL,
    deleted_at REAL
) STRICT;
CREATE INDEX folders_nested ON folders (parent_id);

-- title_by is "prompt" for a title made from the first prompt, which the model may replace; "model" after the model was
-- asked; "person" for all others. unlisted marks chats that are not shown: 1 for a chat that is being erased message by
-- message, 2 for one that is being copied or imported. What a crash leaves of either is erased.
-- thinking is the chat's own choice of whether and how much the model thinks; NULL leaves it to the chat template.
-- answer_shape is JSON of the AnswerShape of a chat's answers; NULL for any text.
CREATE TABLE conversations (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    title TEXT NOT NULL,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL,
    deleted_at REAL,
    system_prompt TEXT,
    sampling TEXT,
    folder_id INTEGER REFERENCES folders (id) ON DELETE SET NULL,
    pinned_at REAL,
    archived_at REAL,
    title_by TEXT NOT NULL DEFAULT 'person',
    unlisted INTEGER NOT NULL DEFAULT 0,
    thinking TEXT,
    answer_shape TEXT
) STRICT;
-- The sidebar reads the rows in view. What else it shows, such as how many chats a folder has, is counted in these
-- indexes: one for each of the lists, with all of its chats in their order.
CREATE INDEX conversations_newest ON conversations (updated_at, id) WHERE deleted_at IS NULL;
CREATE INDEX conversations_in_folder ON conversations (folder_id);
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

-- Messages form a tree by parent_id. The active path of a conversation ends in the message with its highest activated,
-- a counter that goes up whenever a message is added or chosen. So the path last shown below an alternative is found
-- without a pointer that could become outdated. parent_id does not cascade: deleting a chat deletes its messages by
-- conversation_id, one by one, and a cascade along a long chat would exceed SQLite's limit of 1,000 nested triggers.
-- control_offsets are offsets in text, as JSON; NULL where unknown, as for replies that were interrupted. thinking is
-- JSON of Thinking. context_cut is JSON of a ContextCut, which hides this message and those before it from the model.
-- edited: the text is the person's version of a reply. made_with: JSON of MadeWith, or NULL where unknown. text comes
-- last, so that reading other columns does not read its overflow pages.
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
    drafting TEXT,
    control_offsets TEXT,
    thinking TEXT,
    context_cut TEXT,
    edited INTEGER NOT NULL DEFAULT 0,
    made_with TEXT,
    text TEXT NOT NULL
) STRICT;
-- A long chat is opened with the ids of its messages only (messages_path has all of them); those in view are read. A
-- path is read by its runs (MessageTree): a long chat without branches has a single run.
CREATE INDEX messages_alternatives ON messages (parent_id, conversation_id, role, id);
CREATE INDEX messages_activated ON messages (conversation_id, activated);
CREATE INDEX messages_streaming ON messages (id) WHERE status = 'streaming';
CREATE INDEX messages_by_model ON messages (model, conversation_id) WHERE model IS NOT NULL;
CREATE INDEX messages_path ON messages (conversation_id, parent_id);
CREATE INDEX messages_runs ON messages (conversation_id, parent_id) WHERE parent_id IS NOT id - 1;
CREATE INDEX messages_cut ON messages (conversation_id) WHERE context_cut IS NOT NULL;
CREATE INDEX messages_measured ON messages (conversation_id) WHERE statistics IS NOT NULL;

-- Traces have a table of their own: they are many times as large as the texts, and read one at a time.
CREATE TABLE message_traces (
    message_id INTEGER PRIMARY KEY REFERENCES messages (id) ON DELETE CASCADE,
    trace BLOB NOT NULL
) STRICT;

-- Token ids of a reply, as 32-bit numbers, to draft later replies from. tokenizer names the tokenizer that they are of.
CREATE TABLE reply_tokens (
    message_id INTEGER PRIMARY KEY REFERENCES messages (id) ON DELETE CASCADE,
    tokenizer TEXT NOT NULL,
    ids BLOB NOT NULL
) STRICT;
CREATE TRIGGER reply_tokens_outdated AFTER UPDATE OF text ON messages BEGIN
    DELETE FROM reply_tokens WHERE message_id = old.id;
END;

-- A deleted message has a row here, and so has each one below it: one short transaction however long the chat is, and
-- the search index stays unchanged until they are erased. root_id is the message that the person deleted.
CREATE TABLE deleted_messages (
    message_id INTEGER PRIMARY KEY REFERENCES messages (id) ON DELETE CASCADE,
    root_id INTEGER NOT NULL,
    deleted_at REAL NOT NULL
) STRICT;

-- The text of a file is stored once, by its SHA-256, and is deleted with the last message that has it. It has a table
-- of its own, so that opening a chat does not read it. conversation_id is the message's: searching the messages of a
-- long chat for the few with files would take a tenth of the time in which a chat has to open.
CREATE TABLE file_texts (
    digest TEXT PRIMARY KEY,
    text TEXT NOT NULL
) STRICT;
CREATE TABLE message_files (
    id INTEGER PRIMARY KEY,
    message_id INTEGER NOT NULL REFERENCES messages (id) ON DELETE CASCADE,
    conversation_id INTEGER NOT NULL,
    position INTEGER NOT NULL,
    digest TEXT NOT NULL REFERENCES file_texts (digest),
    kind TEXT NOT NULL,
    characters INTEGER NOT NULL,
    taken TEXT NOT NULL,
    note TEXT NOT NULL,
    name TEXT NOT NULL
) STRICT;
CREATE INDEX message_files_in_order ON message_files (message_id, position);
CREATE INDEX message_files_by_chat ON message_files (conversation_id);
CREATE INDEX message_files_by_text ON message_files (digest);

-- The reading position: the first message in view, and how many pixels of it are above the view. A chat without a row
-- opens at its end.
CREATE TABLE reading_positions (
    conversation_id INTEGER PRIMARY KEY REFERENCES conversations (id) ON DELETE CASCADE,
    message_id INTEGER NOT NULL,
    above INTEGER NOT NULL
) STRICT;

-- Typed text that was neither sent nor saved: in a message's editor; in a chat's message field, without a message; in a
-- new chat's message field, without a chat.
CREATE TABLE unsent_texts (
    conversation_id INTEGER REFERENCES conversations (id) ON DELETE CASCADE,
    message_id INTEGER REFERENCES messages (id) ON DELETE CASCADE,
    text TEXT NOT NULL
) STRICT;
CREATE INDEX unsent_texts_of_chat ON unsent_texts (conversation_id);
CREATE INDEX unsent_texts_of_message ON unsent_texts (message_id);

CREATE VIRTUAL TABLE titles_index USING fts5 (
    title, content = 'conversations', content_rowid = 'id', tokenize = 'unicode61 remove_diacritics 2'
);
{_triggers("titles", "title", "title", text="{row}title", table="conversations")}

-- A reply is indexed for search when it is finished, not with each half second of its text.
CREATE VIEW messages_searched AS SELECT id, text FROM messages WHERE status <> 'streaming';
CREATE VIRTUAL TABLE messages_index USING fts5 (
    text, content = 'messages_searched', content_rowid = 'id', tokenize = 'unicode61 remove_diacritics 2',
    prefix = '1 2 3'
);
{
        _triggers(
            "messages",
            "text",
            "text, status",
            condition=_FINISHED,
            text="{row}text",
            when=f"WHEN {_FINISHED.format(row='old.')} OR {_FINISHED.format(row='new.')}",
        )
    }

-- Summaries of messages that were cut are searched too. One that was tampered with is not; the index is rebuilt from
-- the view (`rebuild`).
CREATE VIEW summaries_searched AS
    SELECT id, {SUMMARY} AS summary FROM messages WHERE context_cut IS NOT NULL;
CREATE VIRTUAL TABLE summaries_index USING fts5 (
    summary, content = 'summaries_searched', content_rowid = 'id', tokenize = 'unicode61 remove_diacritics 2',
    prefix = '1 2 3'
);
{_triggers("summaries", "summary", "context_cut", condition="{row}context_cut IS NOT NULL", text=_SUMMARY)}

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
)
"""Script N-1 turns version N-1 into version N. A released script never changes: a new version appends one."""


def schema_version(connection: sqlite3.Connection) -> int:
    """Return the database's version; 0 for an empty one."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def migrate(connection: sqlite3.Connection, migrations: Sequence[str] = MIGRATIONS) -> None:
    """Migrate the database to the newest version, each step in one transaction."""
    for version in range(schema_version(connection) + 1, len(migrations) + 1):
        script = f"BEGIN IMMEDIATE; {migrations[version - 1]}; PRAGMA user_version = {version}; COMMIT;"
        try:
            connection.executescript(script)
        except sqlite3.Error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
