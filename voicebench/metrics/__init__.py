"""One family of metrics a file; every function takes plain values and can be recomputed by hand."""
