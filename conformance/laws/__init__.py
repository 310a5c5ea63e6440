"""The laws as `kvcanon laws` gives them: found by words, and as JSON."""
