"""Drafters for a model: those on this machine, and those that are published."""
