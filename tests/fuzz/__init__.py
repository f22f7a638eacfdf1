"""Fuzzing of everything that reads bytes from outside.

targets   one function for each parser, and what must be true of it for any bytes
seeds     inputs to start from, made from the recorded cases in tests/data
__main__  `make fuzz`: atheris, which is guided by the coverage

pytest calls the same functions with the seeds and with random mutations of them.
"""
