"""The Downloads page."""
