"""Files attached to a chat: read in a child process, stored with the message as text."""
