"""Drafters that the hub has for a model."""
