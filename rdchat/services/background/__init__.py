"""Jobs on threads, with results for the main thread."""
