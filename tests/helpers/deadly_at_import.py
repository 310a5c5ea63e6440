"""A cache whose module ends or blocks its process at its import, in the way that DEADLY names."""

from __future__ import annotations

import os

import deadly
from kvcanon.reference import ReferenceCache

deadly.WAYS[os.environ["DEADLY"]]()
make = ReferenceCache
