"""Groups of flags, and the commands other than `run`: explain, migrate and shadow-report.

Commands use the controller's parts; no other package imports from here.
"""
