"""The model's context: how much of it a chat takes, and what is done when a chat outgrows it."""
