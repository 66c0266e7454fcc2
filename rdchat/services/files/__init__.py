"""Files that the person brings into a chat: read, counted and kept until they are sent."""
