"""Training a drafter from the window: control of its process, and its files."""
