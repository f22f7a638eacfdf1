"""`python -m playground`."""

import signal

# Importing takes a moment, in which there is nothing to clean up: Ctrl-C then ends the process without a traceback.
signal.signal(signal.SIGINT, signal.SIG_DFL)

from playground.cli import main  # noqa: E402  # after the line above, which is the point of it

signal.signal(signal.SIGINT, signal.default_int_handler)

if __name__ == "__main__":
    main(prog_name="python -m playground")
