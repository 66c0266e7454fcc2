from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from rdchat.tools.definitions import ServerLimits, ToolServer
from rdchat.work.child_process import ChildProcess
from tests.tools.running import Run, hostile, tools_child

type Start = Callable[..., Run]


@pytest.fixture(scope="module")
def child() -> Iterator[ChildProcess]:
    with tools_child() as child:
        yield child


@pytest.fixture
def start(child: ChildProcess) -> Iterator[Start]:
    """Starts servers, hostile ones by their mode; they are stopped at the end of the test."""
    with ExitStack() as stack:

        def run(server: ToolServer | str, limits: ServerLimits | None = None, **values: str) -> Run:
            begun = Run(child, hostile(server) if isinstance(server, str) else server, limits, **values)
            stack.callback(begun.stop)
            return begun

        yield run
