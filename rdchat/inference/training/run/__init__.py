"""A training from beginning to end: its plan, its phases, its limits, and what it writes."""
