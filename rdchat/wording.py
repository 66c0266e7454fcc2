"""Texts for counts, sizes and times, the same in the window, in commands and in errors; the length of a text."""


def counted(number: int, one: str, several: str = "") -> str:
    """Return `1 token` or `1,204 tokens`; `several` is an irregular plural."""
    return f"{number:,} {one if number == 1 else several or f'{one}s'}"


def parameter_text(number: int) -> str:
    """Return `135 M` or `1.54 B`."""
    return f"{number / 1e6:.0f} M" if number < 999_500_000 else f"{number / 1e9:.2f} B"


def size_text(size: float) -> str:
    """Return `12 KB`, `512 MB`, `1.24 GB` or `12.4 GB`."""
    return " ".join(_in_unit(size, size))


def part_text(part: float, total: float) -> str:
    """Return the size of a part, in the unit of the whole: `0.31 of 1.24 GB`."""
    figure, unit = _in_unit(total, total)
    return f"{_in_unit(part, total)[0]} of {figure} {unit}"


def utf16_length(text: str) -> int:
    """Return the length of a text in UTF-16 units, which Qt counts."""
    return len(text) if text.isascii() else len(text) + sum(character > "\uffff" for character in text)


def _in_unit(size: float, of: float) -> tuple[str, str]:
    """Return a size in the unit in which the size `of` is written, and the unit."""
    if of < 999_500:
        return f"{max(round(size / 1e3), 1 if size else 0)}", "KB"
    if of < 999_500_000:
        return f"{size / 1e6:.0f}", "MB"
    decimals = 2 if of < 9.995e9 else 1
    return f"{size / 1e9:,.{decimals}f}", "GB"


def byte_rate(bytes_per_second: float) -> str:
    """Return `850 KB/s` or `24.1 MB/s`."""
    if bytes_per_second < 999_500:
        return f"{bytes_per_second / 1e3:.0f} KB/s"
    return f"{bytes_per_second / 1e6:.1f} MB/s"


def time_left(seconds: float) -> str:
    """Return `12 s left`, `4 min left` or `2 h 5 min left`."""
    return f"{rough_time(seconds)} left"


def rough_time(seconds: float) -> str:
    """Return `12 s`, `4 min`, `2 h 5 min`, `16 h` or `more than a day`."""
    if seconds < 59.5:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 10:
        return f"{hours} h {minutes} min"
    return f"{hours} h" if hours < 24 else "more than a day"
