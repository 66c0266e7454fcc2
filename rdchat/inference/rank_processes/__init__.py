"""The Macs that run a model together: their processes, here and over ssh, and the engine that speaks with them."""
