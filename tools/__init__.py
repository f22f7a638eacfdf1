"""Development tools that run before anything is installed.

They use the standard library only, and import nothing of this repository that needs more. Nothing here is part of the
product.
"""
