"""Put the parts that replicas saved together again:

    python -m torch_xla.distributed.fsdp.consolidate_sharded_ckpts \\
        --ckpt_prefix /tmp/model --ckpt_suffix "_rank-*.pth" --save_path /tmp/model.pth
"""

from __future__ import annotations

import argparse

from torch_xla.distributed.fsdp.state_dict_utils import consolidate_sharded_model_checkpoints


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="Make one checkpoint of those of all replicas.")
    parser.add_argument("--ckpt_prefix", required=True, help="the beginning of the files' paths")
    parser.add_argument("--ckpt_suffix", default="*.pth", help="the rest, with a pattern")
    parser.add_argument("--save_path", default="", help="the file to write")
    _, path = consolidate_sharded_model_checkpoints(**vars(parser.parse_args()))
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
