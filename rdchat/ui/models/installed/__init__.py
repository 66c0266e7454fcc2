"""The Installed page."""
