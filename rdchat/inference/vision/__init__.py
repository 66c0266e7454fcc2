"""Images for models: decoding, preparation, and what a network needs of them."""
