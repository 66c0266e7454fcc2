"""Files: written whole or not at all, locked, and read with care if they are foreign."""
