"""The quick window."""
