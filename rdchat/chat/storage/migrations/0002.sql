-- own_options is JSON of the OwnOptions of a chat, the options that have no column; NULL for none.
ALTER TABLE conversations ADD COLUMN own_options TEXT
