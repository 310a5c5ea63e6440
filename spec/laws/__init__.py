"""Chapter 16. The laws, area by area; importing this package registers them all.

An id is an area and a number inside it; ids are never reused. Read in this order: the tree's shape,
what is where, what a match finds, what counts as recent, locks, slots, evictions, loads, events,
bytes, time, namespaces, refusals. An area has one module, or two.
Five modules hold no laws but what several areas share: `comparing` (what a step changed), `copies`
(how copies ended), `names` (which page has a name), `emission` (which events an operation sends)
and `announcements` (what has to be said).

What readers get wrong: a step law is not only about what an operation does. Most of what has gone
wrong in real caches is something that an operation did besides.
"""

from __future__ import annotations

# The order of the imports is the order of the book, so that a listing reads like it.
# isort: off
from kvcanon.spec.laws import tree as tree
from kvcanon.spec.laws import residency as residency
from kvcanon.spec.laws import host_copies as host_copies
from kvcanon.spec.laws import match as match
from kvcanon.spec.laws import recency as recency
from kvcanon.spec.laws import orders as orders
from kvcanon.spec.laws import turns as turns
from kvcanon.spec.laws import ageing as ageing
from kvcanon.spec.laws import lock as lock
from kvcanon.spec.laws import receipts as receipts
from kvcanon.spec.laws import alloc as alloc
from kvcanon.spec.laws import accounting as accounting
from kvcanon.spec.laws import ownership as ownership
from kvcanon.spec.laws import evict as evict
from kvcanon.spec.laws import victims as victims
from kvcanon.spec.laws import write_back as write_back
from kvcanon.spec.laws import load as load
from kvcanon.spec.laws import event as event
from kvcanon.spec.laws import event_order as event_order
from kvcanon.spec.laws import event_content as event_content
from kvcanon.spec.laws import data as data
from kvcanon.spec.laws import asynchrony as asynchrony
from kvcanon.spec.laws import settling as settling
from kvcanon.spec.laws import namespace as namespace
from kvcanon.spec.laws import refusal as refusal
# isort: on

from kvcanon.spec.law import order_by_id

order_by_id()
