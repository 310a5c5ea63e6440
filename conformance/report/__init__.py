"""Reports: what a check found, for people, for machines, and as scripts that show it again.

What readers get wrong: every report says the same. They are written from one value, `Report`, so
that a page that somebody sends around and the JSON behind it cannot disagree.
"""
