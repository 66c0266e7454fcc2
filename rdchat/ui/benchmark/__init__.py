"""The benchmark window: what to measure, how it goes, and what came of it as tables and pictures."""

from rdchat.ui.benchmark.window import BenchmarkWindow

__all__ = ["BenchmarkWindow"]
