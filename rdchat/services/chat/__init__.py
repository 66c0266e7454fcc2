"""The open chat, its commands, and the replies that are being written and stored."""
