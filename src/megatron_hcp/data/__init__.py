"""Reads the lengths of training data. numpy and pyarrow are imported only inside the functions that need them."""
