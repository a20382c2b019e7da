"""Studies: many fits on known data, kept as they finish, beside printed figures."""
