"""What people found out by reading a commit, where its title and files mislead: (project, number) -> topics, options.

An empty pair leaves the fix out: no launch that trains runs the code. Options stand for a condition that no fact shows.
"""

JUDGED: dict[tuple[str, str], tuple[tuple[str, ...], tuple[str, ...]]] = {
    ("mcore", "5077"): ((), ("dist_ckpt_optim_fully_reshardable",)),
    ("mcore", "4705"): ((), ("decoupled_lr", "decoupled_min_lr")),
    ("mcore", "1871"): ((), ("log_energy",)),
    ("mcore", "3569"): ((), ("load_main_params_from_ckpt",)),
    ("mcore", "3647"): ((), ("moe_use_upcycling",)),
    ("mcore", "3693"): ((), ("num_distributed_optimizer_instances",)),
    ("mcore", "3074"): (("graphs",), ("delay_wgrad_compute",)),
    ("mcore", "3965"): ((), ("mtp_use_repeated_layer",)),
    ("mcore", "3268"): (("thd", "tp", "pp"), ()),
    ("mcore", "4607"): ((), ()),
    ("te", "3067"): ((), ()),
    ("te", "2871"): ((), ()),
    ("bridge", "4820"): ((), ("non_persistent_ckpt_type",)),
    ("verl", "6001"): (("cp", "thd"), ()),
    ("verl", "7261"): (("thd", "router_replay"), ()),
    ("ms_swift", "9470"): (("vision", "recompute"), ("vit_gradient_checkpointing",)),
}
