"""Draws TeX formulas in a child process."""
