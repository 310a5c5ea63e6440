"""An adapter for Mooncake Store: a master, a process that provides memory, and clients."""
