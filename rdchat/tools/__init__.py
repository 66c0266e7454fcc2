"""Servers of tools (MCP) for models: they run in a child process; two come with rdchat. No Qt, no MLX, no chats."""
