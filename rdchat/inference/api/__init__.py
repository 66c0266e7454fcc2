"""What is asked of the engine and what it tells: plain frozen data and protocols. No MLX, nothing happens on import."""
