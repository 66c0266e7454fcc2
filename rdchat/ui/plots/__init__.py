"""Pictures of benchmarks and trainings: described once, then painted in a window or written as PNG, PDF or SVG."""
