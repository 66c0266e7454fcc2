"""The window of a reply's tokens and draft trees."""
