"""Downloads as widgets see them, and the account that they are asked with."""
