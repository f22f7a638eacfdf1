"""The web pages of the adapter (`--ui-address`): rules, metrics, and a box in which to try a rule."""
