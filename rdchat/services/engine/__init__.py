"""The engine thread and its client on the main thread, with draft settings, times and benchmarks of replies."""
