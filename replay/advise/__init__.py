"""`advise`: for many HPAs, what the history of each says about its target and its maxReplicas."""
