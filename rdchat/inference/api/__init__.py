"""Requests, events, results and protocols of the engine: plain frozen data. No MLX, no side effect of importing it."""
