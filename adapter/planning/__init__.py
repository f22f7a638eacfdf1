"""From what requests ask to the fewest queries that answer it.

planner         a request's query, and the one that would answer many such requests at once
kept_plans      queries that were made before
separable       whether a query can be asked for many objects at once
mergeable       which query that is, if a rule's template allows it
merged          one query for what many requests ask of a rule, and each one's part of its answer
sample_index    a request's part of a long answer
fresh           cached results with single flight and refresh-ahead
shared_queries  queries by text, each sent once
rule_queries    what a rule's query came back with, and what its policy makes of it
"""
