"""Measuring drafting modes against plain decoding, interleaved, on prompts of one's own."""
