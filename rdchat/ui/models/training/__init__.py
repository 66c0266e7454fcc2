"""Training a drafter: what is to be trained, how it goes, and what came of it."""
