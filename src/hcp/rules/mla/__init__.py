"""Multi-latent attention."""
