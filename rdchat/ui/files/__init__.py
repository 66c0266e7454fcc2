"""Files in the message field and in messages: chips, choosing a part, and reading what was sent."""
