"""The keys of the country workloads."""

from importlib import resources

COUNTRIES: tuple[str, ...] = tuple(
    resources.files(__package__).joinpath("countries.txt").read_text("utf-8").splitlines()
)
"""204 different names; some countries have two, as in the lists that such data comes from."""

HOT_COUNTRY = "Turkey"
"""The key that the skewed workloads repeat."""
