"""The order of conversations: commands of the sidebar, searching, undoing, titles by the model."""
