"""The engine thread and its client on the main thread: draft settings, caches, earlier replies, times, benchmarks."""
