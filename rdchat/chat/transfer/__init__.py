"""Exports, imports of our own and other apps' files, backups and restores."""
