"""The settings window, and the options of one chat."""
