-- The notes that a person kept, oldest first: of a project, or without a folder of all chats. Those of a deleted chat
-- stay. source says what of the chat was text of others; empty for nothing.
CREATE TABLE notes (
    id INTEGER PRIMARY KEY,
    folder_id INTEGER REFERENCES folders (id) ON DELETE CASCADE,
    conversation_id INTEGER REFERENCES conversations (id) ON DELETE SET NULL,
    created_at REAL NOT NULL,
    source TEXT NOT NULL,
    text TEXT NOT NULL
) STRICT;
CREATE INDEX notes_by_folder ON notes (folder_id);
CREATE INDEX notes_by_chat ON notes (conversation_id)
