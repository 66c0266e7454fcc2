"""Servers: those of remote models and of tools, and the app's own for other programs."""
