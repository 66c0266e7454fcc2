"""Exports, imports of our own and of other apps' files, backups and restores."""
