"""The settings window, and the options and tools of one chat."""
