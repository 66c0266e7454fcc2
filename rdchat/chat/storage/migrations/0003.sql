-- tool_calls is JSON of the ToolCalls of a reply; NULL for none. tool_call_id and tool_name say which call of the reply
-- above a message with the role "tool" answers.
ALTER TABLE messages ADD COLUMN tool_calls TEXT;
ALTER TABLE messages ADD COLUMN tool_call_id TEXT NOT NULL DEFAULT '';
ALTER TABLE messages ADD COLUMN tool_name TEXT NOT NULL DEFAULT '';

-- The arguments of calls are searched too. They are JSON within JSON, where a line break has two backslashes. Messages
-- of version 2 have no calls, so the index stays as it is.
DROP TRIGGER messages_added;
DROP TRIGGER messages_removed;
DROP TRIGGER messages_changed;
DROP VIEW messages_searched;
CREATE VIEW messages_searched AS
    SELECT id, text || replace(coalesce(tool_calls, ''), '\\n', ' ') AS text FROM messages WHERE status <> 'streaming';
CREATE TRIGGER messages_added AFTER INSERT ON messages WHEN new.status <> 'streaming' BEGIN
    INSERT INTO messages_index (rowid, text)
        VALUES (new.id, new.text || replace(coalesce(new.tool_calls, ''), '\\n', ' '));
END;
CREATE TRIGGER messages_removed AFTER DELETE ON messages WHEN old.status <> 'streaming' BEGIN
    INSERT INTO messages_index (messages_index, rowid, text)
        VALUES ('delete', old.id, old.text || replace(coalesce(old.tool_calls, ''), '\\n', ' '));
END;
CREATE TRIGGER messages_changed AFTER UPDATE OF text, status, tool_calls ON messages
    WHEN old.status <> 'streaming' OR new.status <> 'streaming'
BEGIN
    INSERT INTO messages_index (messages_index, rowid, text)
        SELECT 'delete', old.id, old.text || replace(coalesce(old.tool_calls, ''), '\\n', ' ')
        WHERE old.status <> 'streaming';
    INSERT INTO messages_index (rowid, text)
        SELECT new.id, new.text || replace(coalesce(new.tool_calls, ''), '\\n', ' ') WHERE new.status <> 'streaming';
END
