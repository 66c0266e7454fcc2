"""The models on this machine as the models window lists them: read from headers, cached on disk."""
