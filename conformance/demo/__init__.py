"""What `kvcanon demo` shows: a cache and a stream of KV events, each with one fault."""
