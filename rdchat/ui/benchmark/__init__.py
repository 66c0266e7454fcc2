"""The benchmark window: plan, progress, and results as tables and pictures."""

from rdchat.ui.benchmark.window import BenchmarkWindow

__all__ = ["BenchmarkWindow"]
