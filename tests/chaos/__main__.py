"""`python -m tests.chaos`, and `make chaos`."""

from tests.chaos.run import main

if __name__ == "__main__":
    main()
