"""Formulas in a message: found in its source, drawn off the main thread, and shown in the line."""
