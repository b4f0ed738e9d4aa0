"""The table of facts: what each means, and which upstream key sets it in each dialect."""
