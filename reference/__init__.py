"""The plain cache: one readable tree that obeys the law book.

Read it as the book's worked example, one operation a file. `state` is all the data there is; every
operation is a free function over it, and `cache` is the door that checks what comes in.

What readers get wrong: plain is not a sketch. Every rule of the book is here, asynchronous copies,
failures and refusals included; what is left out is cleverness.
"""

from kvcanon.reference.cache import ReferenceCache as ReferenceCache
from kvcanon.reference.engine import InlineEngine as InlineEngine
from kvcanon.reference.engine import ManualEngine as ManualEngine
