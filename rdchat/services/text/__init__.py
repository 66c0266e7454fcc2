"""Work on the text of the open chat: what is typed, edited replies, deleted messages, branches, other replies."""
