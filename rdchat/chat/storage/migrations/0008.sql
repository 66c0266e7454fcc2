-- project is JSON of the Project of a folder, what its chats share; NULL for nothing.
ALTER TABLE folders ADD COLUMN project TEXT
