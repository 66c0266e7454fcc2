"""Training a recurrent drafter for a target: data that the target writes itself, then a small head that predicts it."""
