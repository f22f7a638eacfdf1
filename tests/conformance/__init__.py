"""Compare our code with recorded behaviour of Kubernetes 1.36.

`python -m tests.conformance` (`make conformance`) checks every file of recorded cases in tests/data, or in another
directory with files of the same names, and prints one line for each. A file `NAME.jsonl.gz` is checked by the module
`tests.conformance.NAME`, which has one function:

    def check(case: dict[str, Any]) -> str | None

It returns None if our result equals the recorded one, or else the differences. It raises `Skip` if the recorded result
is declared to be meaningless. Numbers that a case flags as wrong or as dependent on the platform are not compared; the
number of such cases is printed.
"""
