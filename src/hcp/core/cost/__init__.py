"""What GPUs, links, and the layers of a model cost: data sheets, sizes, and measured profiles."""
