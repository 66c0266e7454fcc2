"""The benchmark window: drafting against plain decoding, on one prompt or several."""
