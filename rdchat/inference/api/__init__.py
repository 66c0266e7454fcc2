"""Requests, events, results and protocols of the engine: plain frozen data. Importing it loads no MLX."""
