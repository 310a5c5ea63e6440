"""Chapter 17. The laws, area by area; importing this package registers them all.

An id is an area and a number; ids are never reused. Read in this order: the tree's shape,
residency, matches, recency, locks, slots, what a call was asked for, evictions, load-backs, events,
bytes, copies in flight, the store
below the host, hashes, refusals. An area has one module or several.

These modules hold no laws, but what several areas share: `premises`, `bounds` (in which runs a law
can come up), `visibility` (which methods show a law without snapshots), `situations` (what happens
in a step), `comparison` (what a step changed), `unasked` (what a cache did on its own), `copies`
(how copies ended), `placed` (the end of a prefetch), `page_hashes`, `emission` (the table of
events) and `expected_events`.

What readers get wrong: a step law checks not only what an operation must do, but also what it must
leave alone. Most faults of real caches are things that an operation did besides.
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
from kvcanon.spec.laws import eviction_order as eviction_order
from kvcanon.spec.laws import bystanders as bystanders
from kvcanon.spec.laws import lock as lock
from kvcanon.spec.laws import receipts as receipts
from kvcanon.spec.laws import alloc as alloc
from kvcanon.spec.laws import accounting as accounting
from kvcanon.spec.laws import ownership as ownership
from kvcanon.spec.laws import asked as asked
from kvcanon.spec.laws import evict as evict
from kvcanon.spec.laws import cascade as cascade
from kvcanon.spec.laws import write_back as write_back
from kvcanon.spec.laws import failed_victims as failed_victims
from kvcanon.spec.laws import load as load
from kvcanon.spec.laws import event as event
from kvcanon.spec.laws import event_order as event_order
from kvcanon.spec.laws import event_content as event_content
from kvcanon.spec.laws import data as data
from kvcanon.spec.laws import asynchrony as asynchrony
from kvcanon.spec.laws import settlement as settlement
from kvcanon.spec.laws import ranks as ranks
from kvcanon.spec.laws import engine_calls as engine_calls
from kvcanon.spec.laws import tier as tier
from kvcanon.spec.laws import tier_progress as tier_progress
from kvcanon.spec.laws import namespace as namespace
from kvcanon.spec.laws import refusal as refusal
from kvcanon.spec.laws import refusal_fields as refusal_fields
# isort: on

from kvcanon.spec.law import order_by_id

order_by_id()
