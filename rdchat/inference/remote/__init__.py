"""Models that a remote server runs, over OpenAI's chat completions. No MLX and no Qt."""
