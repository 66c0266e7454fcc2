"""The training page: the form, the progress and the result of a training."""
