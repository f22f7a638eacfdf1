"""Records of decisions: their JSON and sentence, the log in memory, the audit file, and the comparisons of shadow mode.

Everything here is made from a Decision or from an HPA's status. Nothing reads from or writes to the cluster.
"""
