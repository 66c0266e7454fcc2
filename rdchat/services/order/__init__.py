"""The sidebar's services: its list and order, search, undo, and titles by the model."""
