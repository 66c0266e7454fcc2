"""The benchmark window and the race window."""
