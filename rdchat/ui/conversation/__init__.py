"""The middle of the window: the open chat or the welcome page, and the message field below it."""
