"""A client for the scenarios of MCP's conformance suite: lists a server's tools in the real child, and calls each.

    npx @modelcontextprotocol/conformance client --scenario tools_call \
        --command ".venv/bin/python -m tests.conformance.mcp_client"
"""

import json
import sys

from rdchat.tools.definitions import ToolServer
from tests.tools.running import Run, tools_child

# The only tool of the suite that has arguments.
ARGUMENTS = json.dumps({"a": 5, "b": 3})


def main() -> None:
    with tools_child() as child:
        run = Run(child, ToolServer("suite", url=sys.argv[-1]))
        for tool in run.listed():
            run.call(tool["name"], ARGUMENTS if tool["parameters"].get("required") else "{}")
        run.stop()


if __name__ == "__main__":
    main()
