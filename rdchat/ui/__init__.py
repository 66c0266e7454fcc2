"""Qt widgets. No MLX, no SQL."""
