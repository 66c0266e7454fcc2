"""What else the machine does, and what it runs on: looked at before anything is timed. Not yet tried on a Mac."""

import logging

import psutil

_LOG = logging.getLogger(__name__)
_BUSY = (
    "user",
    "nice",
    "system",
    "irq",
    "softirq",
    "steal",
)  # macOS has the first three; `steal` is other guests' time


def on_battery() -> bool:
    """Tell whether the machine runs on its battery; no where it has none, or nobody knows."""
    try:
        battery = psutil.sensors_battery()
    except (OSError, RuntimeError, NotImplementedError):  # psutil asks the kernel, whose answer it may not understand
        _LOG.debug("The battery cannot be read", exc_info=True)
        return False
    return battery is not None and battery.power_plugged is False


def others_seconds() -> float:
    """Return the seconds of processor time that other programs have had: a clock, of which only differences count.

    On a GPU's own work psutil has nothing, so a program that uses the GPU alone is not seen.
    """
    try:
        everything, own = psutil.cpu_times(), psutil.Process().cpu_times()
    except (psutil.Error, OSError):
        return 0.0
    return sum(getattr(everything, kind, 0.0) for kind in _BUSY) - own.user - own.system


def processors() -> int:
    """Return how many processors `others_seconds` counts the time of."""
    return psutil.cpu_count() or 1
