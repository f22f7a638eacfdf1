"""What is told of decisions afterwards: records, the sentence for people, the audit file, shadow mode's comparisons."""
