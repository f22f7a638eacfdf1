"""The commands `serve`, `check` and `explain`, and their flags.

The modules here turn flags into typed options, and build the running process from the packages below. Logic about
metrics, rules or clients belongs there. No other package of the adapter imports this one.
"""
