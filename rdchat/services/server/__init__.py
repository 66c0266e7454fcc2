"""The server for other programs, in the app: its engine and its life."""
