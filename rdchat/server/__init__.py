"""An HTTP server for other programs, in front of the engine: OpenAI's and Anthropic's interfaces. No Qt, no MLX."""
