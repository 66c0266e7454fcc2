"""What the window has as a whole: its services, its commands, what the app does now, chats moved in and out."""
