"""Readers of the calls of tools that models write, by the form of each family."""
