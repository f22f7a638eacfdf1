"""From what requests ask to the fewest queries that answer it.

planner         a request's query, and the one that would answer many such requests at once
separable       whether a template can be asked for many objects at once
merged          one query for what many requests ask of a rule, and each one's part of its answer
fresh           answers shared by who asks for the same, and kept for as long as they are fresh
shared_queries  queries by text, each sent once
rule_queries    what a rule's query came back with, and what its policy makes of it
"""
