"""The command line's rooms: groups of flags, and the commands beside `run`."""
