"""The Drafters page."""
