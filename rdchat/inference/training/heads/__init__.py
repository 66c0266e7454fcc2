"""Training of drafter heads: data, losses, the trainer, and the resulting weights."""
