-- The image of a file, as it was given, once for all messages that have it; the text in its row of file_texts is empty.
-- Before this version, a tool's image was such a text, in base64. width and height are 0 until the image was decoded.
-- data comes last, so that reading the size does not read its overflow pages.
CREATE TABLE file_images (
    digest TEXT PRIMARY KEY REFERENCES file_texts (digest) ON DELETE CASCADE,
    width INTEGER NOT NULL,
    height INTEGER NOT NULL,
    data BLOB NOT NULL
) STRICT
