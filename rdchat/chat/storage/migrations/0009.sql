-- The files of folders that are projects, in their order; their texts are stored with those of messages.
CREATE TABLE folder_files (
    folder_id INTEGER NOT NULL REFERENCES folders (id) ON DELETE CASCADE,
    position INTEGER NOT NULL,
    digest TEXT NOT NULL REFERENCES file_texts (digest),
    kind TEXT NOT NULL,
    characters INTEGER NOT NULL,
    taken TEXT NOT NULL,
    note TEXT NOT NULL,
    name TEXT NOT NULL
) STRICT;
CREATE INDEX folder_files_in_order ON folder_files (folder_id, position);
CREATE INDEX folder_files_by_text ON folder_files (digest);
CREATE TRIGGER folder_files_removed AFTER DELETE ON folder_files BEGIN
    DELETE FROM file_texts WHERE digest = old.digest
        AND NOT EXISTS (SELECT 1 FROM message_files WHERE digest = old.digest)
        AND NOT EXISTS (SELECT 1 FROM folder_files WHERE digest = old.digest);
END;
DROP TRIGGER files_removed;
CREATE TRIGGER files_removed AFTER DELETE ON message_files BEGIN
    INSERT INTO files_index (files_index, rowid, name) VALUES ('delete', old.id, search_text(CAST(old.name AS BLOB)));
    DELETE FROM file_texts WHERE digest = old.digest
        AND NOT EXISTS (SELECT 1 FROM message_files WHERE digest = old.digest)
        AND NOT EXISTS (SELECT 1 FROM folder_files WHERE digest = old.digest);
END
