"""`tune`: look for a better HPA spec on recorded load, and check it on a part that the search has not seen."""
