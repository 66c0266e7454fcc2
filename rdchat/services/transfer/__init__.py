"""Imports, exports, backups and restores for the window and the command line."""
