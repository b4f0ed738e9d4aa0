"""Reads training data for its lengths. numpy and pyarrow only inside the functions that cannot do without."""
