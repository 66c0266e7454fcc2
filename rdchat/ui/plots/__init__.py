"""Plots of benchmarks and trainings, painted in a window or saved as PNG or PDF."""
