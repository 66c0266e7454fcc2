"""Jobs on threads and in child processes. No Qt."""
