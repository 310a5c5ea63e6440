"""Suite: `check_cache`, and the tests that pytest collects for a cache."""

NO_CACHE = (
    "kvcanon.conformance judges a cache: give --kvcanon-cache package.module:factory, or reference"
)
