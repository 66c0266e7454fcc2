"""Downloads of models, in a child process."""
