"""Documents and their bytes: JSON, YAML and protobuf, chosen by Accept.

documents   metric values, CPU and memory, and tables of these for kubectl
protobuf    the same as protobuf messages
encoding    content negotiation and compression

The input is typed data. Queries and connections do not belong here.
"""
