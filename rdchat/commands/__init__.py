"""The subcommands of `rdchat`, one module each."""
