"""A message's text: markdown parsed, written into a document, and shown while it grows."""
