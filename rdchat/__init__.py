"""rdchat: a desktop chat app that runs language models on the user's own machine and drafts ahead to answer faster."""

__version__ = "0.1.0"
