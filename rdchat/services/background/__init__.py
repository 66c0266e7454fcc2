"""Work beside the window: on threads, or in slices between its events."""
