"""A process: its start, event loop, signals, log, command line and files."""
