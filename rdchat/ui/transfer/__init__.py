"""Export, import, backup and restore in the window: the File menu's sheets, and what came of them."""
