"""The one SQLite file: opened, checked, migrated, searched, and kept when it is damaged."""
