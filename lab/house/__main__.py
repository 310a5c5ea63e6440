"""`python -m kvcanon.lab.house`: check the rules of the house; exits with 1 if one is broken."""

import sys

from kvcanon.lab.house.rules import broken_rules

if __name__ == "__main__":
    found = list(broken_rules())
    sys.stdout.writelines(f"{each}\n" for each in found)
    sys.exit(bool(found))
