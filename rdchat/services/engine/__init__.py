"""The engine thread and what the main thread sees of it: requests go in as calls, events come out as signals."""
