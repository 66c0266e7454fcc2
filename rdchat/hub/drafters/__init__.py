"""What the hub has to draft for a model."""
