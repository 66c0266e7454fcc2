"""Work on the text of the open chat: edited replies, deleted messages, branches, replies made in another way."""
