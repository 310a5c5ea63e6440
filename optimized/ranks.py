"""Agreement of ranks by torch.distributed.

Each rank of a tensor-parallel model has a cache of its own. All get the same calls, and settle the
same copies: those that have ended on every rank. docs/ranks.md is the protocol.

    cache = PrefixCache(config, pools, agree=agree_by(cpu_group))
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist

from kvcanon.spec.errors import BadArgument
from kvcanon.spec.transfer import Agree


def agree_by(group: dist.ProcessGroup | None = None) -> Agree:
    """Make the `agree` of this rank: the least of all ranks of a group, four bytes for each number.

    It takes one all-reduce of CPU tensors, so give a group of gloo, as
    `torch.distributed.new_group(backend="gloo")`; None is the default group. A rank that does not
    call it lets the others wait until the group's timeout, which ends in an error of torch.

    Raises:
        BadArgument: the group has no CPU backend.
    """
    if "gloo" not in str(dist.get_backend_config(group)):
        raise BadArgument("group", "reduces no CPU tensors; give one with the backend gloo")

    def agree(arrivals: Sequence[int]) -> Sequence[int]:
        least = torch.tensor(arrivals, dtype=torch.int32)
        dist.all_reduce(least, dist.ReduceOp.MIN, group=group)
        numbers: list[int] = least.tolist()
        return numbers

    return agree
