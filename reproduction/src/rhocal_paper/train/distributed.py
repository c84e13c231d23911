"""Training one network on several devices: each process computes its part of every batch, and gradients are averaged.

The processes find each other by the environment that ``torchrun`` sets (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT).
"""

from __future__ import annotations

import atexit
import os
from dataclasses import dataclass

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from rhocal.errors import InputError


@dataclass(frozen=True)
class Processes:
    """One process among those that train a network."""

    rank: int = 0
    n: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this one measures and writes."""
        return self.rank == 0

    def wrap(self, net: nn.Module, device: torch.device) -> nn.Module:
        """The network as training calls it: gradients are averaged over processes.

        On GPUs batch normalization uses the whole batch, as on a single one; torch cannot do that on the CPU, where each
        process normalizes its own part.
        """
        if self.n == 1:
            return net
        return DistributedDataParallel(net, device_ids=None if device.type == "cpu" else [device])

    def add(self, values: Tensor) -> Tensor:
        """The sum over processes."""
        if self.n > 1:
            distributed.all_reduce(values)
        return values


def synchronized(net: nn.Sequential, processes: Processes, device: torch.device) -> nn.Sequential:
    """The network with batch normalization over the batches of all processes, where torch can."""
    if processes.n == 1 or device.type == "cpu":
        return net
    converted: nn.Sequential = nn.SyncBatchNorm.convert_sync_batchnorm(net)  # type: ignore[no-untyped-call]
    return converted


def processes(device: torch.device) -> Processes:
    """Join the processes that the environment names; alone where it names none.

    They stay together until this process ends: a worker trains one network after the other with them.
    """
    n = int(os.environ.get("WORLD_SIZE", "1"))
    if n == 1:
        return Processes()
    if not distributed.is_available():
        raise InputError("WORLD_SIZE: this installation of torch cannot train on several processes")
    if not distributed.is_initialized():
        distributed.init_process_group("gloo" if device.type == "cpu" else "nccl")
        atexit.register(distributed.destroy_process_group)
    return Processes(distributed.get_rank(), n)
