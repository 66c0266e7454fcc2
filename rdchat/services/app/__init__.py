"""The process itself: one instance, signals, the garbage collector."""
