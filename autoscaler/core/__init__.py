"""What to do about an HPA, and why: pure functions on plain typed data.

No I/O, no clock, no randomness, nothing global: the linter keeps everything out of here that could bring them. The live
loop, dry runs, shadow mode and explanations all call `decide`; so do the recorded cases of Kubernetes that judge it.
"""
