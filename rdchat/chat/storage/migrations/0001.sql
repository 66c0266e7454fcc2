-- The tables of version 1, that of the first release, 0.1.0.
-- "RDC1"; see schema.py.
PRAGMA application_id = 1380205361;

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

-- Each index below has triggers that keep it as its table is.
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

-- A reply is indexed for search when it is finished, not with each half second of its text.
CREATE VIEW messages_searched AS SELECT id, text FROM messages WHERE status <> 'streaming';
CREATE VIRTUAL TABLE messages_index USING fts5 (
    text, content = 'messages_searched', content_rowid = 'id', tokenize = 'unicode61 remove_diacritics 2',
    prefix = '1 2 3'
);
CREATE TRIGGER messages_added AFTER INSERT ON messages WHEN new.status <> 'streaming' BEGIN
    INSERT INTO messages_index (rowid, text) VALUES (new.id, new.text);
END;
CREATE TRIGGER messages_removed AFTER DELETE ON messages WHEN old.status <> 'streaming' BEGIN
    INSERT INTO messages_index (messages_index, rowid, text) VALUES ('delete', old.id, old.text);
END;
CREATE TRIGGER messages_changed AFTER UPDATE OF text, status ON messages
    WHEN old.status <> 'streaming' OR new.status <> 'streaming'
BEGIN
    INSERT INTO messages_index (messages_index, rowid, text)
        SELECT 'delete', old.id, old.text WHERE old.status <> 'streaming';
    INSERT INTO messages_index (rowid, text) SELECT new.id, new.text WHERE new.status <> 'streaming';
END;

-- Summaries of messages that were cut are searched too. One that was tampered with is not; the index is rebuilt from
-- the view (`rebuild`).
CREATE VIEW summaries_searched AS
    SELECT
        id,
        substr(CASE WHEN json_valid(context_cut) THEN json_extract(context_cut, '$.summary') END, 1, 200000) AS summary
    FROM messages WHERE context_cut IS NOT NULL;
CREATE VIRTUAL TABLE summaries_index USING fts5 (
    summary, content = 'summaries_searched', content_rowid = 'id', tokenize = 'unicode61 remove_diacritics 2',
    prefix = '1 2 3'
);
CREATE TRIGGER summaries_added AFTER INSERT ON messages WHEN new.context_cut IS NOT NULL BEGIN
    INSERT INTO summaries_index (rowid, summary) VALUES (
        new.id,
        substr(CASE WHEN json_valid(new.context_cut) THEN json_extract(new.context_cut, '$.summary') END, 1, 200000)
    );
END;
CREATE TRIGGER summaries_removed AFTER DELETE ON messages WHEN old.context_cut IS NOT NULL BEGIN
    INSERT INTO summaries_index (summaries_index, rowid, summary) VALUES (
        'delete', old.id,
        substr(CASE WHEN json_valid(old.context_cut) THEN json_extract(old.context_cut, '$.summary') END, 1, 200000)
    );
END;
CREATE TRIGGER summaries_changed AFTER UPDATE OF context_cut ON messages BEGIN
    INSERT INTO summaries_index (summaries_index, rowid, summary)
        SELECT 'delete', old.id,
            substr(CASE WHEN json_valid(old.context_cut) THEN json_extract(old.context_cut, '$.summary') END, 1, 200000)
        WHERE old.context_cut IS NOT NULL;
    INSERT INTO summaries_index (rowid, summary)
        SELECT new.id,
            substr(CASE WHEN json_valid(new.context_cut) THEN json_extract(new.context_cut, '$.summary') END, 1, 200000)
        WHERE new.context_cut IS NOT NULL;
END;

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
