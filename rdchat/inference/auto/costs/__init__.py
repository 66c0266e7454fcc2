"""What target calls and drafts cost on this machine: measured while idle, kept on disk, corrected by real calls."""
