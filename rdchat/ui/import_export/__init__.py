"""Export, import, backup and restore in the window."""
