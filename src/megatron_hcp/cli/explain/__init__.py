"""`hcp explain`: the page of a rule, of a guard of upstream's, or of an option."""
