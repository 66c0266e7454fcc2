"""What happens on a stand-in for a device while a reply is decoded."""

from collections.abc import Iterator

from rdchat.inference.api import GenerationEvent, ReplyEnd, TokenEvent
from tests.inference.device_stand_in import DeviceStandIn, Event


def decoding(device: DeviceStandIn, iterator: Iterator[GenerationEvent]) -> tuple[ReplyEnd, list[Event]]:
    """Return the end of a reply, and what happened behind its first token."""
    begun: int | None = None
    with device.working():
        for event in iterator:
            if isinstance(event, TokenEvent) and begun is None:
                begun = len(device.events)
            last = event
    assert isinstance(last, ReplyEnd)
    return last, device.events[begun:]


def waits(events: list[Event]) -> int:
    """Return how often the host waited."""
    return sum(event.what == "wait" for event in events)


def order(events: list[Event]) -> list[str]:
    """Return what was built, queued and waited for: `build beams`, `queue target`, `wait`."""
    return [f"{event.what} {'+'.join(event.of)}".strip() for event in events if event.of != ("other",)]
