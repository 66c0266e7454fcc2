"""Training a drafter from the window: a process of its own, and what is kept of it."""
