"""Models of the hub: searching, what is told of one, and which of them fit this machine."""
