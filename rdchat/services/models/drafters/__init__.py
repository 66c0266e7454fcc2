"""Drafters for a model, on this machine and on the hub."""
