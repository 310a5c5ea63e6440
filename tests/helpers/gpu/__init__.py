"""A GPU that is not there: kernels interpreted, a driver compiled here, streams run by hand."""
