"""Keys as MAX's requests.

MAX separates prompts by `cache_salt` alone. It refuses LoRA adapters together with a prefix cache,
and has no field for an application's key, so all of a namespace goes into the salt. An empty salt
is no salt.
"""

from __future__ import annotations

from typing import cast

import numpy as np

from kvcanon.conformance.engines.max.factory import LONGEST_TOKENS, MAX
from kvcanon.conformance.engines.max.peer_types import MaxContext
from kvcanon.spec.hashing import encode_namespace
from kvcanon.spec.types import DEFAULT_NAMESPACE, Key, Namespace


def make_context(request_id: int, key: Key) -> MaxContext:
    """Make a request whose prompt is a key of one page or more."""
    tokens = [cast("int", token) for page in key.pages for token in page]
    made: MaxContext = MAX["TextContext"](
        request_id=MAX["RequestID"](str(request_id)),
        max_length=2 * LONGEST_TOKENS,
        tokens=MAX["TokenBuffer"](np.array(tokens, dtype=np.int64)),
        cache_salt=salt_of(key.namespace),
    )
    return made


def salt_of(namespace: Namespace) -> str | None:
    """Encode a namespace as a salt; None for the default namespace."""
    if namespace == DEFAULT_NAMESPACE:
        return None
    return encode_namespace(namespace).decode("latin-1")
