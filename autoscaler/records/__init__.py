"""Records of decisions: their JSON and sentence, the log in memory, the audit file, and the comparisons of shadow mode.

The input is a Decision or an HPA's status. Nothing here reads from or writes to the cluster.
"""
