"""Files: written completely or not at all, locked, and checked while they are read if they are foreign."""
