"""The cost of GPUs, links and model layers: data sheets, sizes and measured profiles."""
