"""All planted faults: importing this module registers them."""

from kvcanon.lab.stores import planted_contents as planted_contents
from kvcanon.lab.stores import planted_presence as planted_presence
from kvcanon.lab.stores import planted_service as planted_service
from kvcanon.lab.stores.fault import STORE_FAULTS as STORE_FAULTS
