"""`rdchat chats`: list, export, import, back up and restore the chats, whether the window is open or not."""
