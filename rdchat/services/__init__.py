"""The engine thread with its Qt facade, and the services of the window. QtCore and QtNetwork only, no widgets."""
