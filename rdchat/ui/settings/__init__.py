"""Preferences, and the options of one chat."""
