"""Downloads of models, in a process of their own."""
