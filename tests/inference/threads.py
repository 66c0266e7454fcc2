"""Work on a thread of its own."""

import threading
from collections.abc import Callable


def on_a_thread[Result](work: Callable[[], Result]) -> Result:
    """Return what `work` returns on a thread of its own, after that thread has ended."""
    results: list[Result] = []
    thread = threading.Thread(target=lambda: results.append(work()))
    thread.start()
    thread.join()
    return results[0]
