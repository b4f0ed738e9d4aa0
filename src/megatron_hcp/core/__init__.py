"""Pure arithmetic on int and tuple: ranks, levels, shards, packing, dynamic CP. Standard library only."""
