-- Whether a person has kept the note, so that it counts: an import brings notes that nobody has.
ALTER TABLE notes ADD COLUMN kept INTEGER NOT NULL DEFAULT 1
