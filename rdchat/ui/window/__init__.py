"""The main window: menus, header, sidebar, and the windows that it opens."""
