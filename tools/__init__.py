"""Development tools that run before anything is installed: standard library only."""
