"""Training heads that attend to the text: EAGLE-3 and DSpark, on whole conversations."""
