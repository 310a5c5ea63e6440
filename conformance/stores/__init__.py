"""Judges stores of pages by the laws of `spec.stores`: `kvcanon check-store`.

A store has an adapter (`adapter`). Cases are drawn from a seed (`draw`) and played (`play`) on a
store in this process or in processes of its own (`hosts`), which are killed, stopped half-way and
started again. `check` gives every law its standing and reduces what was found.
"""

from kvcanon.conformance.stores.adapter import FolderGround as FolderGround
from kvcanon.conformance.stores.adapter import StoreAdapter as StoreAdapter
from kvcanon.conformance.stores.adapter import StoreGround as StoreGround
from kvcanon.conformance.stores.adapter import StoreOffer as StoreOffer
from kvcanon.conformance.stores.adapter import folder_ground as folder_ground
from kvcanon.spec.stores.calls import Ability as Ability
