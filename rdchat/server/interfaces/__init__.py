"""The APIs that the server speaks: their requests, replies and errors. Nothing here knows the engine or HTTP."""
