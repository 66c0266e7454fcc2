"""The SQLite file: opening, checking, migrating, searching, and keeping a damaged one."""
