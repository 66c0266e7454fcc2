"""Files: written whole or not at all, locked, read with care where strangers wrote them."""
