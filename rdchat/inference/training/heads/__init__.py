"""Drafter heads in training: their data, losses and trainer, and the weights that come of it."""
