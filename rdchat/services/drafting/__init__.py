"""The draft settings of replies, and the times that they take."""
