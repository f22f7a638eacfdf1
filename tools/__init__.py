"""Development tools: what `make` runs to build, to release and to generate files. Nothing here is part of the product.

setup_venv and krew_launcher run before anything is installed, so they use the standard library only. The others run in
the environment that setup_venv makes.
"""
