"""Plans that routers make together, and who takes part in them."""
