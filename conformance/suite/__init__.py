"""Suite: `check_cache`, and the tests that pytest collects for a cache."""
