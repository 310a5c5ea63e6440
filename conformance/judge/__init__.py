"""Judges a cache while it is used: by the states that it shows, and from outside by its answers."""
