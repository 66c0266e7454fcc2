"""Token ids of conversations. A child process runs chat templates and tokenizers, since they are foreign data.

`model_prompts` is what the engine uses; `child` is the process.
"""
