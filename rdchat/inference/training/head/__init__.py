"""The drafter's head while it learns: samples, loss, trainer, and what folds into its weights afterwards."""
