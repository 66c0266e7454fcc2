"""Code and formulas of replies, coloured and drawn by children."""
