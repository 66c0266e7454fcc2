"""What the process itself needs: one instance, signals, the garbage collector."""
