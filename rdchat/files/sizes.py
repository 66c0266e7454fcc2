"""Sizes of files and memory as text, in powers of ten as in Finder."""


def size_text(size: float) -> str:
    """Return `12 KB`, `512 MB`, `1.24 GB` or `12.4 GB`."""
    return "{} {}".format(*_in_unit(size, size))


def part_text(part: float, total: float) -> str:
    """Return the size of a part, in the unit of the whole: `0.31 of 1.24 GB`."""
    figure, unit = _in_unit(total, total)
    return f"{_in_unit(part, total)[0]} of {figure} {unit}"


def _in_unit(size: float, of: float) -> tuple[str, str]:
    if of < 999_500:
        return f"{max(round(size / 1e3), 1 if size else 0)}", "KB"
    if of < 999_500_000:
        return f"{size / 1e6:.0f}", "MB"
    return f"{size / 1e9:,.{2 if of < 9.995e9 else 1}f}", "GB"
