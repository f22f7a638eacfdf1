"""The console script `milliscale`: the commands of all other packages under one name."""
