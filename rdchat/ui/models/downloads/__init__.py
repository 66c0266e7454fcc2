"""What is being downloaded, and what was left unfinished."""
