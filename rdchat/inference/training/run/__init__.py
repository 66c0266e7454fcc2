"""A training from beginning to end: its plan, limits, phases and results."""
