"""The commands `serve`, `check` and `explain`, and their flags.

The modules here turn flags into typed options, and build the running process from the packages below. Nothing here
decides anything about metrics, rules or clients; no other package of the adapter imports this one.
"""
