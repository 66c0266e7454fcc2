-- The index holds what search_text returns: each connection has this function, which is `index_text` in search_text.py.
-- Its only row says with which version of that the index was made, and from which id on messages are in it: those
-- before are indexed in the background, the newest ones first. The function decodes a text
-- itself, so that a damaged one is no error.
CREATE TABLE search_state (
    version TEXT NOT NULL,
    indexed_from INTEGER NOT NULL
) STRICT;

DROP TRIGGER titles_added;
DROP TRIGGER titles_removed;
DROP TRIGGER titles_changed;
DROP TABLE titles_index;
CREATE VIEW titles_searched AS SELECT id, search_text(CAST(title AS BLOB)) AS title FROM conversations;
CREATE VIRTUAL TABLE titles_index USING fts5 (
    title, content = 'titles_searched', content_rowid = 'id', tokenize = 'ascii tokenchars ''#$%&+<=>@'''
);
CREATE TRIGGER titles_added AFTER INSERT ON conversations BEGIN
    INSERT INTO titles_index (rowid, title) VALUES (new.id, search_text(CAST(new.title AS BLOB)));
END;
CREATE TRIGGER titles_removed AFTER DELETE ON conversations BEGIN
    INSERT INTO titles_index (titles_index, rowid, title)
        VALUES ('delete', old.id, search_text(CAST(old.title AS BLOB)));
END;
CREATE TRIGGER titles_changed AFTER UPDATE OF title ON conversations BEGIN
    INSERT INTO titles_index (titles_index, rowid, title)
        VALUES ('delete', old.id, search_text(CAST(old.title AS BLOB)));
    INSERT INTO titles_index (rowid, title) VALUES (new.id, search_text(CAST(new.title AS BLOB)));
END;

DROP TRIGGER messages_added;
DROP TRIGGER messages_removed;
DROP TRIGGER messages_changed;
DROP TABLE messages_index;
DROP VIEW messages_searched;
CREATE VIEW messages_searched AS
    SELECT id, search_text(CAST(text || ' ' || replace(coalesce(tool_calls, ''), '\\n', ' ') AS BLOB)) AS text
    FROM messages WHERE status <> 'streaming';
CREATE VIRTUAL TABLE messages_index USING fts5 (
    text, content = 'messages_searched', content_rowid = 'id', tokenize = 'ascii tokenchars ''#$%&+<=>@''',
    prefix = '1 2 3'
);
CREATE TRIGGER messages_added AFTER INSERT ON messages
    WHEN new.status <> 'streaming' AND new.id >= (SELECT indexed_from FROM search_state)
BEGIN
    INSERT INTO messages_index (rowid, text)
        VALUES (new.id, search_text(
            CAST(new.text || ' ' || replace(coalesce(new.tool_calls, ''), '\\n', ' ') AS BLOB)
        ));
END;
CREATE TRIGGER messages_removed AFTER DELETE ON messages
    WHEN old.status <> 'streaming' AND old.id >= (SELECT indexed_from FROM search_state)
BEGIN
    INSERT INTO messages_index (messages_index, rowid, text)
        VALUES ('delete', old.id, search_text(
            CAST(old.text || ' ' || replace(coalesce(old.tool_calls, ''), '\\n', ' ') AS BLOB)
        ));
END;
CREATE TRIGGER messages_changed AFTER UPDATE OF text, status, tool_calls ON messages
    WHEN (old.status <> 'streaming' OR new.status <> 'streaming')
        AND new.id >= (SELECT indexed_from FROM search_state)
BEGIN
    INSERT INTO messages_index (messages_index, rowid, text)
        SELECT 'delete', old.id, search_text(
            CAST(old.text || ' ' || replace(coalesce(old.tool_calls, ''), '\\n', ' ') AS BLOB)
        )
        WHERE old.status <> 'streaming';
    INSERT INTO messages_index (rowid, text)
        SELECT new.id, search_text(
            CAST(new.text || ' ' || replace(coalesce(new.tool_calls, ''), '\\n', ' ') AS BLOB)
        )
        WHERE new.status <> 'streaming';
END;

DROP TRIGGER summaries_added;
DROP TRIGGER summaries_removed;
DROP TRIGGER summaries_changed;
DROP TABLE summaries_index;
DROP VIEW summaries_searched;
CREATE VIEW summaries_searched AS
    SELECT
        id,
        substr(CASE WHEN json_valid(context_cut) THEN json_extract(context_cut, '$.summary') END, 1, 200000) AS written,
        search_text(CAST(
            substr(CASE WHEN json_valid(context_cut) THEN json_extract(context_cut, '$.summary') END, 1, 200000)
            AS BLOB)) AS summary
    FROM messages WHERE context_cut IS NOT NULL;
CREATE VIRTUAL TABLE summaries_index USING fts5 (
    summary, content = 'summaries_searched', content_rowid = 'id', tokenize = 'ascii tokenchars ''#$%&+<=>@''',
    prefix = '1 2 3'
);
CREATE TRIGGER summaries_added AFTER INSERT ON messages WHEN new.context_cut IS NOT NULL BEGIN
    INSERT INTO summaries_index (rowid, summary) VALUES (
        new.id, search_text(CAST(
            substr(CASE WHEN json_valid(new.context_cut) THEN json_extract(new.context_cut, '$.summary') END, 1, 200000)
            AS BLOB))
    );
END;
CREATE TRIGGER summaries_removed AFTER DELETE ON messages WHEN old.context_cut IS NOT NULL BEGIN
    INSERT INTO summaries_index (summaries_index, rowid, summary) VALUES (
        'delete', old.id, search_text(CAST(
            substr(CASE WHEN json_valid(old.context_cut) THEN json_extract(old.context_cut, '$.summary') END, 1, 200000)
            AS BLOB))
    );
END;
CREATE TRIGGER summaries_changed AFTER UPDATE OF context_cut ON messages BEGIN
    INSERT INTO summaries_index (summaries_index, rowid, summary)
        SELECT 'delete', old.id, search_text(CAST(
            substr(CASE WHEN json_valid(old.context_cut) THEN json_extract(old.context_cut, '$.summary') END, 1, 200000)
            AS BLOB))
        WHERE old.context_cut IS NOT NULL;
    INSERT INTO summaries_index (rowid, summary)
        SELECT new.id, search_text(CAST(
            substr(CASE WHEN json_valid(new.context_cut) THEN json_extract(new.context_cut, '$.summary') END, 1, 200000)
            AS BLOB))
        WHERE new.context_cut IS NOT NULL;
END;

DROP TRIGGER files_added;
DROP TRIGGER files_removed;
DROP TABLE files_index;
CREATE VIEW files_searched AS SELECT id, search_text(CAST(name AS BLOB)) AS name FROM message_files;
CREATE VIRTUAL TABLE files_index USING fts5 (
    name, content = 'files_searched', content_rowid = 'id', tokenize = 'ascii tokenchars ''#$%&+<=>@'''
);
CREATE TRIGGER files_added AFTER INSERT ON message_files BEGIN
    INSERT INTO files_index (rowid, name) VALUES (new.id, search_text(CAST(new.name AS BLOB)));
END;
CREATE TRIGGER files_removed AFTER DELETE ON message_files BEGIN
    INSERT INTO files_index (files_index, rowid, name) VALUES ('delete', old.id, search_text(CAST(old.name AS BLOB)));
    DELETE FROM file_texts WHERE digest = old.digest
        AND NOT EXISTS (SELECT 1 FROM message_files WHERE digest = old.digest);
END
