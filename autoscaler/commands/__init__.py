"""The command line beside `run`: its groups of flags, and the commands explain, migrate and shadow-report.

Commands use the controller's parts; no other package imports from here.
"""
