"""Language models on this machine: loading, decoding, chat sessions. All MLX code is here, and no Qt."""
