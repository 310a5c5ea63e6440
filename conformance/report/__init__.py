"""Reports of a check: text, HTML, JSON, JUnit XML, and scripts that show a failure again.

All are written from one value, `CheckReport`.
"""
