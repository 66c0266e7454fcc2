"""Pictures of benchmarks, drawn with QPainter: in a window, and as PNG, SVG or PDF."""
