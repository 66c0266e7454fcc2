-- Where the words of a message are from, if not from the person or a model: an import, a link or a paste. A complete
-- reply that does not say how it was drafted came with an import, with all messages of its chat before it.
ALTER TABLE messages ADD COLUMN origin TEXT;
ALTER TABLE unsent_texts ADD COLUMN origin TEXT CHECK (origin IN ('an import', 'a link', 'a pasted text'));
UPDATE messages SET origin = 'an import' FROM (
    SELECT conversation_id AS chat, max(id) AS last FROM messages
    WHERE role = 'assistant' AND status = 'complete' AND NOT edited AND drafting IS NULL AND text <> ''
    GROUP BY conversation_id
) WHERE conversation_id = chat AND id <= last
