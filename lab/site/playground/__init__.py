"""The playground: the plain cache, the laws and the planted faults, in the reader's browser."""
