"""The Hugging Face hub: search, download, verify and delete models. No Qt, no MLX."""
