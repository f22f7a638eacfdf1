"""Documents and their bytes: JSON, YAML and protobuf, chosen by Accept.

documents           lists of metric values; `resource_documents` those of CPU and memory
protobuf            the same as protobuf messages, written with `wire`
encoding            which form a client gets, and how large answers are compressed
"""
