"""Models of the Hugging Face hub, and their cards."""
