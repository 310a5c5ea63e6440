"""The specification: what a prefix KV cache must do, as Python that runs.

Each chapter imports only chapters before it:

 1. `errors`      refusals, which leave the state unchanged
 2. `oracle`      the definitions, as small pure functions: prefix, window, eviction, backup, ...
 3. `types`       words: page, slot, component, medium, namespace, key
 4. `config`      the operator's settings, and the profile: where a cache departs from the canon
 5. `hashing`     page hashes
 6. `events`      the events that a cache emits for routers
 7. `transfer`    copies between media, which take time and can fail
 8. `tier`        orders to a store below the host, and what is known of it
 9. `operations`  the calls of a cache, and their outcomes
10. `snapshot`    the whole state of a cache, as a value
11. `cache`       the protocol of a cache
12. `difference`  the nodes and slots that differ between two states
13. `views`       a key's path, and a step seen page by page
14. `refusals`    when each operation is refused, and with which error
15. `replay`      what an eviction had to do, computed from the state before it
16. `law`         what a law is, and how it is checked
17. `laws`        the laws themselves, one module an area
18. `wire`        what holds of the frames in which events travel to routers
19. `shortest`    the part of a run that still shows what the whole run shows
20. `stores`      stores of pages below the host: names, protocol, and the laws of stores

This is not a model of one engine's cache: it is what every prefix cache must do. Where sound caches
differ, `config.Profile` has a field for the choice, with its reason.
"""
