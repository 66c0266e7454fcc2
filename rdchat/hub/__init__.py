"""The Hugging Face hub: search, download, verify and remove models. Nothing else in rdchat knows it; no Qt, no MLX."""
