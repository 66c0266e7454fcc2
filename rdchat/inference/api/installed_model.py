"""A model that lies on this machine, for a person to choose."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class InstalledModel:
    """A model folder or GGUF file that was found where this or another program keeps its models.

    Attributes:
        name: For people: a hub id, the publisher and name of LM Studio's folders, or the file's name.
        model: What `Engine.load` takes.
        place: Whose folder it lies in, such as "LM Studio".
        problem: Why it cannot be loaded, a sentence; empty where nothing stands against it.
    """

    name: str
    model: str
    place: str
    problem: str = ""
