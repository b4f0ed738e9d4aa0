"""The one table of facts: what each means, and which upstream key holds it in each dialect."""
