"""What is wider than the column scrolls sideways by itself."""
