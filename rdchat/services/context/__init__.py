"""The model's context: counting a chat's share of it, and cutting a chat that outgrows it."""
