"""Formulas from TeX to pictures, in a process of their own."""
