"""Models of the hub: search, details, and whether they fit this machine."""
