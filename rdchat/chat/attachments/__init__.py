"""Files that a person brings into a chat: read in a process of their own, stored with the message as text."""
