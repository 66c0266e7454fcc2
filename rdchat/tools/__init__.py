"""Tools: servers that run in a child process, and two that come with rdchat. No Qt, no MLX, no chats."""
