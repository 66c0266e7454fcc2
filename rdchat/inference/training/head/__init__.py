"""The drafter's head while it learns: samples, loss, trainer, and what is folded into its weights afterwards."""
