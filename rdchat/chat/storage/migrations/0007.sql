-- The files of messages that were neither sent nor saved, in their order, each with its text (base64 of an image): of a
-- chat's message field; of a new chat's, without a chat. They are copies of their own, as they go when one is removed.
CREATE TABLE unsent_files (
    conversation_id INTEGER REFERENCES conversations (id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    kind TEXT NOT NULL,
    digest TEXT NOT NULL,
    characters INTEGER NOT NULL,
    taken TEXT NOT NULL,
    note TEXT NOT NULL,
    width INTEGER NOT NULL,
    height INTEGER NOT NULL,
    text TEXT NOT NULL
) STRICT;
CREATE INDEX unsent_files_of_chat ON unsent_files (conversation_id)
