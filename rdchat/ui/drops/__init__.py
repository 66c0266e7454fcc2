"""Files, folders and models that are dropped on a window."""
