"""The engine thread and its client on the main thread: requests go in, events come back by callbacks."""
