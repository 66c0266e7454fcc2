"""Work on threads beside the window."""
