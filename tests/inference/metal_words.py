"""The words of Metal's errors, as MLX raises them."""

FAILED = "[METAL] Command buffer execution failed: "
WORDS = FAILED + "Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)"
