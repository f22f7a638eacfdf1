"""Recorded behaviour of Kubernetes 1.36, and the judges that hold our code against it.

`python -m tests.conformance` (`make conformance`) judges every file of recorded cases in tests/data, or in another
directory with files of the same names, and prints one line for each. A file `NAME.jsonl.gz` is judged by the module
`tests.conformance.NAME`, which has one function:

    def judge(case: dict[str, Any]) -> str | None

It returns None if our code does what was recorded, or else says what differs. It raises `Skip` where the recording
itself is declared to be meaningless. Numbers that a case flags as wrong or as dependent on the platform are left out of
the comparison by the judge; how many cases were compared without them is printed.
"""
