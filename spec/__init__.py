"""The law book: what a prefix KV cache must do, as Python that runs.

Each chapter imports only chapters before it:

 1. `errors`      refusals, which leave the state unchanged
 2. `oracle`      the definitions, as small pure functions: prefix, window, eviction, backup, ...
 3. `types`       words: page, slot, component, medium, namespace, key
 4. `config`      what a cache is asked to be; the profile says where it departs from the canon
 5. `hashing`     names of pages
 6. `events`      what a cache tells routers
 7. `transfer`    copies between media, which take time and can fail
 8. `operations`  what may be asked, and what is answered
 9. `snapshot`    the whole state, as a value
10. `cache`       the protocol of a cache
11. `difference`  what is not the same in two states
12. `views`       a key's path, and a step seen page by page
13. `refusals`    when each operation is refused, and with which error
14. `replay`      what an eviction had to do, worked out from the state before it
15. `law`         what a law is, and how it is asked
16. `laws`        the laws themselves, one module an area

What readers get wrong: this is not a model of one engine's cache. It is what any of them must do,
and the choices in which sound caches differ are in `config.Profile`, each with its reason.
"""
