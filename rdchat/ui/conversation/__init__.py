"""The middle of the window: the open conversation, what stands in its place, and the field below it."""
