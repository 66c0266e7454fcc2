"""What races and benchmarks say while they cannot run, or cannot yet."""

from rdchat.services.chat.chat_controller import ChatController
from rdchat.services.engine.engine_events import EngineState


def obstacle(controller: ChatController) -> str:
    """Return why nothing can be measured now; empty where it can."""
    if controller.state is EngineState.NO_MODEL:
        return "No model is loaded. Choose one first."
    if controller.state is EngineState.LOADING:
        return "The model is still loading."
    if controller.race.running:
        return "A race is running."
    return "A benchmark is running." if controller.benchmark.running else ""


def waiting_words(controller: ChatController) -> str:
    """Return what a race or a benchmark waits for that has not begun yet."""
    replying = controller.state in (EngineState.PREFILL, EngineState.WRITING)
    return "Waiting for the reply that is being written…" if replying else "Starting…"
