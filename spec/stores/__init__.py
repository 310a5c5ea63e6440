"""Chapter 20. Stores: what must hold of a store that keeps pages below the host.

A *store* keeps pages on a disk or on another machine, by name, while a cache and its process come
and go. It is opened with an *identity*: the weights, the layout and the place among the ranks that
its pages belong to. A page is named by all tokens up to its end, by its namespace and by its pool.

The laws of stores are a family of their own (`STORE_LAWS`), each a function that checks one call:
`contents` has those about wrong bytes, `presence` those about what is there, `service` those about
answers, time, size and crashes. They rest on `known`, what can be known of each page after the
calls so far.

What readers get wrong: a store may lose a page, and say so. What it must never do is give bytes
that nobody put there under that name. A page that cannot be proved to be the page that was put is a
miss.
"""

from kvcanon.spec.stores import contents as contents
from kvcanon.spec.stores import presence as presence
from kvcanon.spec.stores import service as service
from kvcanon.spec.stores.calls import Ability as Ability
from kvcanon.spec.stores.page_store import PageStore as PageStore
from kvcanon.spec.stores.pages import PageKey as PageKey
from kvcanon.spec.stores.pages import StoreIdentity as StoreIdentity
from kvcanon.spec.stores.pages import identity_digest as identity_digest
from kvcanon.spec.stores.pages import page_digest as page_digest
from kvcanon.spec.stores.store_law import STORE_LAWS as STORE_LAWS
from kvcanon.spec.stores.store_law import order_store_laws

order_store_laws()
