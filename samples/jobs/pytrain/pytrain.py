#!/usr/bin/env python3
"""A small training job in Python, data parallel over all ranks, to be recorded and broken.

Ranks come from the variables of torchrun (RANK, WORLD_SIZE); JOB_RENDEZVOUS is an empty
directory that all ranks share. samples/jobs/launch sets both.
"""

import argparse
import os

import pynccl
from data import Loader
from ddp import DataParallel
from trainer import Trainer

BUCKETS = [65536, 16384, 16384, 4096]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--checkpoint-every", type=int, default=10, metavar="STEPS")
    parser.add_argument("--save-on", type=int, metavar="RANK",
                        help="the bug of saving on one rank only: the save gathers from all")
    parser.add_argument("--stuck-loader", type=int, metavar="RANK", help="this rank's data loader stops")
    parser.add_argument("--at", type=int, default=20, metavar="STEP", help="where the loader stops")
    return parser.parse_args()


def main():
    args = arguments()
    rank, nranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    comm = pynccl.Communicator(pynccl.Libraries(), rank, nranks, max(BUCKETS))
    loader = Loader(stuck_at=args.at if rank == args.stuck_loader else None)
    save_here = args.save_on is None or args.save_on == rank
    Trainer(DataParallel(comm, BUCKETS), loader, args.checkpoint_every, save_here).train(args.steps)
    comm.close()
    print(f"rank {rank}: {args.steps} steps")


if __name__ == "__main__":
    main()
